"""One call that is sent twice is one turn: its retry joins the sampling, or gets the reply that is already committed.

Only a call that was answered may be sampled again, for then it is meant so.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from addons.model import ModelFiles
from replay.schema import Turn
from tests.addons.dialects.cases import LS
from tests.addons.dialects.speakers import SPEAKERS, Ask, Speaker
from tests.conftest import Rig, rigged

each_dialect = pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=list(SPEAKERS))
streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
RETRY = {"x-stainless-retry-count": "1"}


async def ask(rig: Rig, speaker: Speaker, *, stream: bool, **headers: str) -> dict[str, Any]:
    """The call, always the same, in the same session; the reply as the SDK has it."""
    async with httpx.AsyncClient(base_url=rig.url, timeout=20, trust_env=False) as http:
        response = await http.post(
            speaker.path(stream=stream), json=speaker.body(Ask(), stream=stream),
            headers={"session-id": "s", **headers},
        )  # fmt: skip
    assert response.status_code == 200, response.text
    return speaker.streamed(response.content) if stream else speaker.whole(response.content)


def turns(rig: Rig) -> list[Turn]:
    return [turn for session in rig.reader.sessions() for turn in rig.reader.turns(session)]


async def until_over(rig: Rig) -> Turn:
    for _ in range(500):
        [turn] = turns(rig)
        if turn.status != "open":
            return turn
        await asyncio.sleep(0.01)
    raise AssertionError("the turn stays open")


@each_dialect
@streamed_or_not
async def test_a_retry_joins_the_sampling(rig: Rig, speaker: Speaker, stream: bool) -> None:
    sampling, joined = asyncio.Event(), asyncio.Event()

    async def hold(index: int) -> None:
        sampling.set()
        await asyncio.wait_for(joined.wait(), 10)

    rig.engine.say("one two three", before=hold)
    first = asyncio.create_task(ask(rig, speaker, stream=stream))
    await sampling.wait()
    second = asyncio.create_task(ask(rig, speaker, stream=stream, **RETRY))
    await asyncio.sleep(0.1)
    joined.set()
    assert await first == await second
    [turn] = turns(rig)
    assert speaker.reply_id(await first) == turn.reply_id


@each_dialect
@streamed_or_not
@pytest.mark.parametrize("headers", [RETRY, {}], ids=["said", "unsaid"])
async def test_a_retry_gets_the_reply_that_was_committed_but_never_arrived(
    rig: Rig, speaker: Speaker, stream: bool, headers: dict[str, str]
) -> None:
    """The connection is lost between the last token and the last event. Not every SDK says that it tries again."""
    sampling, go_on = asyncio.Event(), asyncio.Event()

    async def hold(index: int) -> None:
        sampling.set()
        await asyncio.wait_for(go_on.wait(), 10)

    rig.engine.say("one two three", before=hold)
    first = asyncio.create_task(ask(rig, speaker, stream=stream))
    await sampling.wait()
    with rig.store.write():  # the commit has to wait
        go_on.set()
        await asyncio.sleep(0.2)
        first.cancel()
        await asyncio.sleep(0.1)
    lost = await until_over(rig)
    assert (lost.status, lost.delivered_at) == ("complete", None)
    reply = await ask(rig, speaker, stream=stream, **headers)
    assert [block[1] for block in speaker.blocks(reply)] == ["one two three"]
    assert speaker.reply_id(reply) == lost.reply_id
    await asyncio.sleep(0.05)
    [turn] = turns(rig)
    assert turn.delivered_at is not None
    assert len(rig.engine.requests) == 1


@each_dialect
@streamed_or_not
async def test_a_reply_that_was_committed_outlives_the_process(
    tiny: ModelFiles, tmp_path: Path, speaker: Speaker, stream: bool
) -> None:
    """The proxy stops between the commit and the last event; the retry comes to the next one."""
    said = f"<think>hm</think>one\n{LS}\ntwo"
    async with rigged(tiny, tmp_path) as rig:
        rig.engine.say(said)
        first = await ask(rig, speaker, stream=stream)
        [turn] = turns(rig)
        await asyncio.sleep(0.05)
        _undeliver(rig, turn)
    async with rigged(tiny, tmp_path) as rig:
        again = await ask(rig, speaker, stream=stream, **RETRY)
        assert again == first
        await asyncio.sleep(0.05)
        [turn] = turns(rig)
        assert turn.delivered_at is not None
        assert rig.engine.requests == []
        rig.engine.say("anew")
        assert await ask(rig, speaker, stream=stream) != first


def _undeliver(rig: Rig, turn: Turn) -> None:
    """The record of a reply that was lost on its way."""
    with rig.store.write() as connection:
        connection.execute(update(Turn).where(Turn.id == turn.id).values(delivered_at=None))


@each_dialect
async def test_the_same_call_after_its_reply_is_a_new_one(rig: Rig, speaker: Speaker) -> None:
    for words in ("first", "second"):
        rig.engine.say(words)
        reply = await ask(rig, speaker, stream=True)
        assert [block[1] for block in speaker.blocks(reply)] == [words]
    assert [turn.retry_of for turn in turns(rig)] == [None, None]


@each_dialect
async def test_the_same_call_at_the_same_time_is_two_on_purpose(rig: Rig, speaker: Speaker) -> None:
    """Several samples of one prompt: neither connection is lost, and neither says that it is a retry."""
    begun, both = asyncio.Event(), asyncio.Event()

    async def together(index: int) -> None:
        if len(rig.engine.requests) == 2:
            both.set()
        begun.set()
        await asyncio.wait_for(both.wait(), 10)

    rig.engine.say("one", before=together)
    rig.engine.say("two", before=together)
    first = asyncio.create_task(ask(rig, speaker, stream=False))
    await begun.wait()
    replies = await asyncio.gather(first, ask(rig, speaker, stream=False))
    assert {speaker.blocks(reply)[0][1] for reply in replies} == {"one", "two"}
    assert len(turns(rig)) == 2
