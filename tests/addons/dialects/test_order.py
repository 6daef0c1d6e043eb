"""What happens before what: told by the order of events, not by time."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.addons.dialects.speakers import SPEAKERS, Ask, Speaker
from tests.conftest import Rig

each_dialect = pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=list(SPEAKERS))
TERMINAL = {
    "chat": b'"finish_reason":"stop"',
    "responses": b"event: response.completed",
    "messages": b"event: message_delta",
    "gemini": b'"finishReason":"STOP"',
}


@each_dialect
async def test_the_first_piece_leaves_before_the_last_token_is_sampled(rig: Rig, speaker: Speaker) -> None:
    seen = asyncio.Event()

    async def until_seen(index: int) -> None:
        if index == 3:
            await asyncio.wait_for(seen.wait(), 10)

    script = rig.engine.say("one two three four five", before=until_seen)
    begun = rig.engine.decode(script, 1).encode()
    got = b""
    async with (
        httpx.AsyncClient(base_url=rig.url, trust_env=False) as http,
        http.stream("POST", speaker.path(stream=True), json=speaker.body(Ask(), stream=True)) as response,
    ):
        async for chunk in response.aiter_raw():
            got += chunk
            if b'"' + begun in got:
                seen.set()
    assert seen.is_set()
    assert speaker.blocks(speaker.streamed(got)) == [("text", "one two three four five")]


@each_dialect
async def test_the_turn_is_committed_before_the_terminal_event(rig: Rig, speaker: Speaker) -> None:
    rig.engine.say("short")
    got = b""
    async with (
        httpx.AsyncClient(base_url=rig.url, trust_env=False) as http,
        http.stream("POST", speaker.path(stream=True), json=speaker.body(Ask(), stream=True)) as response,
    ):
        async for chunk in response.aiter_raw():
            got += chunk
            if TERMINAL[speaker.name] in got:
                [turn] = [turn for session in rig.reader.sessions() for turn in rig.reader.turns(session)]
                assert turn.status == "complete"
                break
        else:
            pytest.fail("no terminal event")
