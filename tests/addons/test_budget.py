"""What a session may use: held by the proxy, in every dialect's own error, also across restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
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
from tests.scripted_engine import ScriptedEngine

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


def held(engine: ScriptedEngine, text: str, *, after: int, size: int = 1) -> tuple[asyncio.Event, asyncio.Event]:
    """Queue a reply that stops before its piece `after`: an event for its being there, and one that lets it go on."""
    there, go_on = asyncio.Event(), asyncio.Event()

    async def before(piece: int) -> None:
        if piece == after:
            there.set()
            await go_on.wait()

    engine.say(text, size=size, before=before)
    return there, go_on


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_in_parallel_draw_on_one_budget(rig: Rig, stream: bool) -> None:
    limit(rig, tokens=10)
    first_there, first_goes = held(rig.engine, "alpha " * 9, after=4)
    async with httpx.AsyncClient(base_url=rig.url, headers=HEADERS, timeout=60) as http:
        post = partial(http.post, "/v1/chat/completions")
        first = asyncio.create_task(post(json=chat("one", stream=stream)))
        await first_there.wait()
        second_there, second_goes = held(rig.engine, "beta " * 9, after=3)
        second = asyncio.create_task(post(json=chat("two", stream=stream)))
        await second_there.wait()
        third_there, third_goes = held(rig.engine, "gamma " * 9, after=0)
        third = asyncio.create_task(post(json=chat("three", stream=stream)))
        await third_there.wait()
        assert [body["max_tokens"] for body in rig.engine.requests] == [10, 6, 3], "what was left at each beginning"
        first_goes.set()  # and takes all that is left
        assert '"finish_reason":"length"' in (await first).text
        second_goes.set()
        assert '"finish_reason":"length"' in (await second).text
        third_goes.set()
        ended = await third
        assert ended.status_code == 402
        assert "10 of 10 tokens of this session are used" in ended.text
        assert (await post(json=chat("four"))).status_code == 402
    turns = rig.reader.turns(rig.reader.session("s"))
    assert [(turn.status, turn.finish, turn.n_sampled) for turn in turns[:3]] == [
        ("complete", "length", 7),
        ("complete", "length", 3),
        ("failed", "abort", 0),
    ]
    for turn in turns[:2]:
        ids, logprobs = rig.reader.sampled(turn)
        assert len(ids) == len(logprobs) == turn.n_sampled


async def test_a_piece_of_several_tokens_is_cut_at_the_budget(rig: Rig) -> None:
    limit(rig, tokens=5)
    script = rig.engine.say("delta " * 9, size=4)
    async with httpx.AsyncClient(base_url=rig.url, headers=HEADERS, timeout=60) as http:
        reply = (await http.post("/v1/chat/completions", json=chat("one"))).json()
    assert reply["usage"]["completion_tokens"] == 5
    assert reply["choices"][0]["finish_reason"] == "length"
    (turn,) = rig.reader.turns(rig.reader.session("s"))
    assert list(rig.reader.sampled(turn)[0]) == [*script.pieces[0], script.pieces[1][0]], "a prefix of what was sampled"


async def test_a_reply_that_ends_at_the_budget_ends_by_itself(rig: Rig) -> None:
    length = sum(map(len, rig.engine.say("just right").pieces))
    limit(rig, tokens=length)
    async with httpx.AsyncClient(base_url=rig.url, headers=HEADERS, timeout=60) as http:
        reply = (await http.post("/v1/chat/completions", json=chat("one"))).json()
    assert reply["usage"]["completion_tokens"] == length
    assert reply["choices"][0]["finish_reason"] == "stop"
