"""Which weights sampled which tokens, from the engine to the record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from addons.model import ModelFiles
from replay.schema import Turn
from replay.versions import told
from tests.addons.span_engine import SpanEngine
from tests.conftest import Rig, rigged

USER: Any = {"role": "user", "content": "list the files"}


@pytest.fixture
async def telling(tiny: ModelFiles, tmp_path: Path) -> AsyncIterator[tuple[Rig, SpanEngine]]:
    engine = SpanEngine(tiny)
    async with rigged(tiny, tmp_path, engine) as running:
        yield running, engine


async def ask(rig: Rig, *, stream: bool, **more: Any) -> Turn:
    """Make a call; its turn."""
    client = AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="k", max_retries=0)
    reply: Any = await client.chat.completions.create(model="m", messages=[USER], stream=stream, **more)
    if stream:
        async for _ in reply:
            pass
    [turn] = [turn for session in rig.reader.sessions() for turn in rig.reader.turns(session)]
    return turn


def push_before(engine: SpanEngine, piece: int) -> Any:
    """For a script: version 1 is loaded before that piece is sampled."""

    async def before(index: int) -> None:
        if index == piece:
            engine.weight_version = "1"

    return before


@pytest.mark.parametrize("stream", [True, False])
async def test_a_push_in_mid_reply(telling: tuple[Rig, SpanEngine], stream: bool) -> None:
    rig, engine = telling
    script = engine.say("one two three four", before=push_before(engine, 3))
    ids = [i for piece in script.pieces for i in piece]
    turn = await ask(rig, stream=stream)
    assert turn.weight_versions == [
        {"version": "0", "start": 0, "end": 3}, {"version": "1", "start": 3, "end": len(ids)},
    ]  # fmt: skip
    assert (turn.status, rig.reader.sampled(turn)) == ("complete", (ids, [-0.25] * len(ids)))
    [asked] = engine.generated
    assert (asked["token_ids"], asked["stream"]) == (rig.reader.prompt_ids(turn), stream)
    assert asked["return_token_ids"] is False  # the whole prompt would come back
    assert engine.requests == []


async def test_a_push_while_the_call_waited(telling: tuple[Rig, SpanEngine]) -> None:
    """The version before the call is that of none of its tokens."""
    rig, engine = telling
    engine.say("one two", before=push_before(engine, 0))
    turn = await ask(rig, stream=True)
    assert (turn.weight_version, turn.weight_version_end, turn.weight_versions) == ("1", "1", None)


async def test_a_push_after_the_last_token(telling: tuple[Rig, SpanEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    rig, engine = telling
    engine.say("one two")
    said = engine._told

    def then_pushed(*known: Any) -> dict[str, Any]:
        choice = said(*known)
        if choice["finish_reason"] == "stop":
            engine.weight_version = "1"
        return choice

    monkeypatch.setattr(engine, "_told", then_pushed)
    turn = await ask(rig, stream=False)
    assert (engine.weight_version, told(turn)) == ("1", "0")


async def test_where_we_hang_up_the_place_of_the_push_is_not_known(telling: tuple[Rig, SpanEngine]) -> None:
    rig, engine = telling
    engine.say("one two three four", before=push_before(engine, 1))
    turn = await ask(rig, stream=True, stop=["three"])
    assert (turn.finish, turn.weight_versions, told(turn)) == ("stop_sequence", None, "0→1@?")


async def test_of_a_reply_that_is_cut_the_spans_are_cut(telling: tuple[Rig, SpanEngine]) -> None:
    rig, engine = telling
    engine.say("one two three four", size=100, before=push_before(engine, 0))
    turn = await ask(rig, stream=True, stop=["three"])
    assert turn.n_sampled < len(engine.encode("one two three four<|im_end|>"))
    assert told(turn) == "1"


async def test_spans_that_are_not_those_of_the_tokens(
    telling: tuple[Rig, SpanEngine], caplog: pytest.LogCaptureFixture
) -> None:
    """They cost nobody the reply: it is known from before and after that one version sampled it."""
    rig, engine = telling
    engine.say("one two")
    engine.says = [{"version": "0", "start": 0, "end": 1}]
    turn = await ask(rig, stream=False)
    assert (turn.status, told(turn)) == ("complete", "0")
    assert "do not stand in line" in caplog.text


async def test_an_engine_without_the_route(rig: Rig) -> None:
    async def before(index: int) -> None:
        if index == 1:
            rig.engine.weight_version = "1"

    rig.engine.say("one two", before=before)
    turn = await ask(rig, stream=True)
    assert (turn.weight_versions, told(turn)) == (None, "0→1@?")
