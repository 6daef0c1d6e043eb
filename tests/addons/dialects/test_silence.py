"""Keep-alives: what a harness gets while the model is silent, wherever that falls in a reply.

Harnesses give a stream up that brings nothing for too long, and differ in what is something to them:

    Claude Code   events that the SDK passes on, which pings are not (its patience: 90 s, later 5 min), and bytes
    Codex         events of any kind, but no comments (5 min)
    opencode      bytes (5 min between two chunks)
    Gemini CLI    bytes, by its HTTP client (5 min)

So silence is an event of the dialect wherever it has one that says nothing, from the fifth second on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from anthropic import Anthropic
from openai import OpenAI

from addons.config import GatewayConfig
from addons.model import ModelFiles
from tests.addons.dialects.cases import LS
from tests.addons.dialects.speakers import SPEAKERS, Ask, Speaker
from tests.addons.dialects.speakers.base import masked
from tests.conftest import Rig, rigged

SILENCE = {
    "chat": b": keep-alive\n\n",
    "responses": b"event: keepalive\n",
    "messages": b"event: ping\n",
    "gemini": b"\r\n\r\n\r\n",
}
_VOLATILE = ("id", "call_id", "created", "created_at", "completed_at", "responseId", "thoughtSignature")
TEXT = f"<think>hm</think>I look.\n{LS}"


async def heard(rig: Rig, speaker: Speaker, silences: set[int]) -> bytes:
    """A streamed reply of TEXT; the model pauses before each of these tokens until the harness got a keep-alive."""
    got = bytearray()
    told = asyncio.Event()

    async def pause(index: int) -> None:
        if index in silences:
            told.clear()
            await asyncio.wait_for(told.wait(), 10)

    rig.engine.say(TEXT, before=pause)
    seen = 0
    async with (
        httpx.AsyncClient(base_url=rig.url, trust_env=False) as http,
        http.stream("POST", speaker.path(stream=True), json=speaker.body(Ask(), stream=True)) as response,
    ):
        assert response.status_code == 200
        async for chunk in response.aiter_raw():
            got += chunk
            if (now := bytes(got).count(_mark(speaker))) > seen:
                seen = now
                told.set()
    return bytes(got)


def _mark(speaker: Speaker) -> bytes:
    return b"\r\n\r\n\r\n" if speaker.name == "gemini" else SILENCE[speaker.name]


@pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=list(SPEAKERS))
async def test_silence_anywhere_changes_no_reply(tiny: ModelFiles, tmp_path: Path, speaker: Speaker) -> None:
    async with rigged(tiny, tmp_path, keepalive=0.02) as rig:
        length = len(rig.engine.encode(TEXT))
        # Gemini has said nothing when the first silence falls, so nothing is between which it could be seen.
        first = 1 if speaker.name == "gemini" else 0
        broken = await heard(rig, speaker, set(range(first, length, 3)))
        speaker.wire(broken)
        fluent = await heard(rig, speaker, set())
    assert broken.count(_mark(speaker)) > length // 3 - 3
    assert masked(speaker.streamed(broken), *_VOLATILE) == masked(speaker.streamed(fluent), *_VOLATILE)


def _by_anthropic(raw: bytes) -> list[Any]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=raw, headers={"content-type": "text/event-stream"})

    client = Anthropic(api_key="k", http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))
    return list(client.messages.create(model="m", max_tokens=9, messages=[], stream=True))


def _by_openai(raw: bytes) -> list[Any]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=raw, headers={"content-type": "text/event-stream"})

    client = OpenAI(api_key="k", http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))
    return list(client.chat.completions.create(model="m", messages=[], stream=True))


@pytest.mark.parametrize(("name", "passed_on"), [("messages", _by_anthropic), ("chat", _by_openai)])
async def test_the_sdk_passes_on_that_the_model_still_works(
    tiny: ModelFiles, tmp_path: Path, name: str, passed_on: Callable[[bytes], list[Any]]
) -> None:
    """Within a block a harness's own loop over the SDK's events goes round, though there is nothing to say."""
    async with rigged(tiny, tmp_path, keepalive=0.02) as rig:
        length = len(rig.engine.encode(TEXT))
        broken = await heard(rig, SPEAKERS[name], set(range(length)))
        fluent = await heard(rig, SPEAKERS[name], set())
    assert len(passed_on(broken)) > len(passed_on(fluent)) + length // 2


def test_silence_is_broken_long_before_any_harness_gives_up() -> None:
    assert GatewayConfig().keepalive <= 5
