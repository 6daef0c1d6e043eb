"""What is read of vLLM's answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from addons.caller import SESSION_HEADER, TOKEN_HEADER
from addons.model import ModelFiles
from replay.records import NewSession
from replay.writer import Recorder
from tests.conftest import rigged


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("limited", [True, False])
async def test_what_was_cached_is_told(
    tiny: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool, limited: bool
) -> None:
    """In a stream it comes behind the end, where it must not pass for a token more than a budget has."""
    async with rigged(tiny, tmp_path, token="token") as rig:
        usage = {"prompt_tokens_details": {"cached_tokens": 5}}
        monkeypatch.setattr(rig.engine, "_usage", lambda *_: usage)
        ids = [i for piece in rig.engine.say("one two three").pieces for i in piece]
        metadata = {"budget": {"tokens": len(ids)}} if limited else {}
        with Recorder(rig.store) as recorder:
            recorder.open_session(NewSession(name="s", metadata=metadata)).result()
        headers = {SESSION_HEADER: "s", TOKEN_HEADER: "token"}
        async with AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="k", max_retries=0, default_headers=headers) as client:
            messages: list[Any] = [{"role": "user", "content": "count"}]
            reply: Any = await client.chat.completions.create(model="m", messages=messages, stream=stream)
            if stream:
                async for _ in reply:
                    pass
        [turn] = rig.reader.turns(rig.reader.session("s"))
        assert (turn.finish, rig.reader.sampled(turn)[0]) == ("stop", ids)
        assert (turn.usage or {})["cached"] == 5
