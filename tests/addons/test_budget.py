"""What a session may use: held by the proxy, in every dialect's own error, also across restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import APIStatusError, AsyncAnthropic

from addons.budget import Budget, BudgetSpent
from addons.caller import SESSION_HEADER, TOKEN_HEADER
from addons.model import ModelFiles
from replay.records import NewSession
from replay.writer import Recorder
from tests.conftest import Rig, rigged

HEADERS = {SESSION_HEADER: "s", TOKEN_HEADER: "token"}

CALLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "m", "input": "hi"},
    "/v1/messages": {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]},
    "/v1beta/models/m:generateContent": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


def test_a_budget_is_read_from_metadata() -> None:
    assert not Budget.of(None).limited
    assert not Budget.of({"budget": {"turns": "many"}}).limited
    budget = Budget.of({"budget": {"turns": 2, "tokens": 10}})
    assert budget.left() == 10
    budget.turns, budget.tokens = 1, 4
    assert budget.left() == 6
    budget.turns = 2
    with pytest.raises(BudgetSpent, match="2 of 2 model calls"):
        budget.left()


@pytest.fixture
async def rig(tiny: ModelFiles, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(tiny, tmp_path, token="token") as running:
        yield running


def limit(rig: Rig, **budget: int) -> None:
    with Recorder(rig.store) as recorder:
        recorder.open_session(NewSession(name="s", metadata={"budget": budget})).result()


@pytest.mark.parametrize("path", CALLS)
async def test_a_call_too_many_is_refused_and_recorded(rig: Rig, path: str) -> None:
    limit(rig, turns=1)
    rig.engine.say("one")
    async with httpx.AsyncClient(base_url=rig.url, headers=HEADERS) as http:
        first = await http.post(path, json=CALLS[path])
        assert first.status_code == 200, first.text
        again = await http.post(path, json={**CALLS[path], "temperature": 0.5})
    assert again.status_code == 402
    assert "1 of 1 model calls" in again.text
    turns = rig.reader.turns(rig.reader.session("s"))
    assert [turn.status for turn in turns] == ["complete", "failed"]
    assert "quota" in (turns[1].error or {})["message"]


async def test_tokens_are_counted_over_calls_and_restarts_and_cap_the_next_reply(rig: Rig) -> None:
    length = sum(map(len, rig.engine.say("a reply of some tokens").pieces))
    limit(rig, tokens=length + 3)
    client = AsyncAnthropic(base_url=rig.url, api_key="k", default_headers=HEADERS)

    async def ask(text: str) -> None:
        await client.messages.create(max_tokens=100, model="m", messages=[{"role": "user", "content": text}])

    await ask("one")
    assert rig.engine.requests[0]["max_tokens"] == length + 3
    rig.engine.say("more than three tokens, by an engine that does not listen")
    await ask("two")
    assert rig.engine.requests[1]["max_tokens"] == 3
    with pytest.raises(APIStatusError, match="current quota"):
        await ask("three")
    rig.service.forget()  # as after a restart: the record knows what was used
    with pytest.raises(APIStatusError, match="current quota"):
        await ask("four")


async def test_a_call_that_never_began_uses_nothing(rig: Rig) -> None:
    limit(rig, turns=1)
    too_long = {"model": "m", "messages": [{"role": "user", "content": "word " * 40_000}]}
    async with httpx.AsyncClient(base_url=rig.url, headers=HEADERS, timeout=60) as http:
        assert (await http.post("/v1/chat/completions", json=too_long)).status_code == 400
        rig.engine.say("one")
        path = "/v1/chat/completions"
        assert (await http.post(path, json=CALLS[path])).status_code == 200
