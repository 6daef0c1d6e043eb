"""How much a reply may have, and what a harness is told when it had all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from addons.model import ModelFiles
from tests.addons.dialects.served import Served
from tests.addons.dialects.speakers import SPEAKERS, Ask, Speaker
from tests.conftest import rigged
from tests.scripted_engine import ScriptedEngine


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_for_no_token_only_fills_the_cache(served: Served, stream: bool) -> None:
    """Messages' `max_tokens: 0`: an empty reply with the prompt's length, and no turn."""
    messages = SPEAKERS["messages"]
    asked = len(served.engine.requests)
    body = messages.body(Ask(max_tokens=0), stream=stream)
    response = served.post("/v1/messages", body, "warming")
    dump = messages.streamed(response.content) if stream else messages.whole(response.content)
    assert (messages.blocks(dump), messages.finish(dump)) == ([], "max_tokens")
    prompt, completion, _ = messages.usage(dump)
    assert (prompt, completion) == (
        served.call("/v1/messages", messages.body(Ask(), stream=False)).turn.prompt_length,
        0,
    )
    assert served.turns("warming") == []
    assert len(served.engine.requests) == asked + 1


FULL = {
    "chat": "length",
    "responses": "incomplete max_output_tokens",
    "messages": "model_context_window_exceeded",
    "gemini": "MAX_TOKENS",
}


@pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=list(SPEAKERS))
async def test_a_reply_that_fills_the_window_says_so(tiny: ModelFiles, tmp_path: Path, speaker: Speaker) -> None:
    engine = ScriptedEngine(tiny)
    async with rigged(tiny, tmp_path, engine) as rig, httpx.AsyncClient(base_url=rig.url, trust_env=False) as http:

        async def finish(limit: int | None) -> tuple[str, Any]:
            rig.engine.say("never to be ended", end=None, finish="length")
            body = speaker.body(Ask(max_tokens=4096 if limit is None else limit), stream=False)
            response = await http.post(speaker.path(stream=False), json=body)
            return speaker.finish(speaker.whole(response.content)), rig.engine.requests[-1]

        reply = rig.engine.encode("never to be ended")
        assert (await finish(None))[0] == speaker.finishes("length")
        engine.window = len(rig.engine.requests[-1]["prompt"]) + len(reply)
        rig.service.forget()
        _forget_the_engine(rig.service)
        assert (await finish(None))[0] == FULL[speaker.name]
        told, sent = await finish(len(reply))  # both limits at once: the one that was asked for
        assert (told, sent["max_tokens"]) == (speaker.finishes("length"), len(reply))


def _forget_the_engine(service: Any) -> None:
    service._calls.backend.forget()  # as after a failure: it may have come back with another window


def test_a_limit_of_zero_is_refused_where_it_means_nothing(served: Served) -> None:
    for name in ("chat", "responses", "gemini"):
        speaker = SPEAKERS[name]
        got = served.call(speaker.path(stream=False), speaker.body(Ask(max_tokens=0), stream=False))
        assert json.dumps(got.said).count("0") >= 1
        assert got.refused()
