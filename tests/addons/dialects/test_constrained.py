"""Turns that were sampled under a grammar, and whether they may be trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from addons.model import ModelFiles
from tests.addons.dialects.cases import COMPACT
from tests.addons.dialects.speakers import SPEAKERS, Ask, Speaker
from tests.conftest import rigged

FORCED: dict[str, Any] = {
    "chat": {"tool_choice": "required"},
    "responses": {"tool_choice": "required"},
    "messages": {"tool_choice": {"type": "any"}},
    "gemini": {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
}


@pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=list(SPEAKERS))
@pytest.mark.parametrize(("chosen", "reason"), [(False, "constrained decoding"), (True, None)])
async def test_a_forced_call_is_trained_on_by_choice_only(
    tiny: ModelFiles, tmp_path: Path, speaker: Speaker, chosen: bool, reason: str | None
) -> None:
    """By default not: its logprobs are those of the constrained distribution. The record says what it was sent."""
    async with rigged(tiny, tmp_path, train_constrained=chosen) as rig, httpx.AsyncClient(base_url=rig.url) as http:
        rig.engine.say(COMPACT)
        body = {**speaker.body(Ask(), stream=False), **FORCED[speaker.name]}
        response = await http.post(speaker.path(stream=False), json=body)
        assert response.status_code == 200, response.text
        [turn] = [turn for session in rig.reader.sessions() for turn in rig.reader.turns(session)]
    assert turn.untrainable == reason
    assert turn.sampling_sent["structured_outputs"] == rig.engine.requests[0]["structured_outputs"]
