"""A harness answered from a stored session: by a gateway with no engine behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import text

from addons.caller import SESSION_HEADER, TOKEN_HEADER
from addons.config import GatewayConfig
from addons.errors import CallError
from addons.model import ModelFiles
from addons.reserve_options import ReserveOptions, parse_edits, parse_ignore, parse_sampling
from addons.service import Service, ServiceOptions
from replay.reader import Reader
from replay.store import Store
from tests.conftest import TINY, rigged
from tests.scripted_engine import ScriptedEngine

TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
SYSTEM = {"role": "system", "content": "You are an agent.\nToday's date: 2026-01-01\n\nBe brief."}
NOWHERE = "http://127.0.0.1:9"


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Harness:
    """Sends chat completions, its whole history each time."""

    def __init__(self, url: str, session: str, *, token: str = "t", system: dict[str, Any] = SYSTEM) -> None:
        self.url, self.headers = url, {SESSION_HEADER: session, TOKEN_HEADER: token}
        self.history: list[dict[str, Any]] = [system]

    async def ask(self, text: str, *, status: int = 200, **more: Any) -> dict[str, Any]:
        self.history.append(said(text))
        body = {"model": "m", "messages": self.history, "tools": TOOLS, **more}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.url}/v1/chat/completions", json=body, headers=self.headers) as reply,
        ):
            document: dict[str, Any] = await reply.json()
            assert reply.status == status, document
        if status == 200:
            self.history.append(document["choices"][0]["message"])
        return document


CALL = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'


@pytest.fixture
async def recorded(tiny: ModelFiles, tmp_path: Path) -> AsyncIterator[ScriptedEngine]:
    """Session `old`: three turns of one conversation, then one of a subagent."""
    async with rigged(tiny, tmp_path, token="t") as rig:
        for words in ("first reply", "second reply", "third reply", "a subagent's"):
            rig.engine.say(words)
        harness = Harness(rig.url, "old")
        for words in ("one", "two", "three"):
            await harness.ask(words)
        await Harness(rig.url, "old", system=said("sub")).ask("agent")
        yield rig.engine


@asynccontextmanager
async def serving(folder: Path, engine: str = NOWHERE, **options: Any) -> AsyncIterator[str]:
    service = Service(
        ServiceOptions(
            engine=engine, store=f"sqlite:///{folder / 'record.db'}", model=str(TINY),
            config=GatewayConfig(token="t"), reserve=ReserveOptions(session="old", **options),
        )
    )  # fmt: skip
    port = await service.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await service.stop()


@asynccontextmanager
async def looked_at(folder: Path) -> AsyncIterator[Reader]:
    with Store.open(f"sqlite:///{folder / 'record.db'}") as store:
        yield Reader(store)


@pytest.mark.usefixtures("recorded")
async def test_a_run_is_answered_without_an_engine_and_recorded(tmp_path: Path) -> None:
    async with serving(tmp_path) as url:
        harness = Harness(url, "new")
        for words in ("one", "two", "three"):
            await harness.ask(words)
        assert [m["content"] for m in harness.history if m["role"] == "assistant"] == [
            "first reply", "second reply", "third reply",
        ]  # fmt: skip
    async with looked_at(tmp_path) as reader:
        old, new = reader.session("old"), reader.session("new")
        assert new.meta == {"replays": "old"}
        was, now = (reader.turns(session, tokens=True) for session in (old, new))
        assert len(now) == 3
        for before, after in zip(was, now, strict=False):
            assert (after.sampled, after.logprobs) == (before.sampled, before.logprobs)
            assert reader.prompt_ids(after) == reader.prompt_ids(before)
            assert (after.replays, after.weight_version) == (before.id, before.weight_version)
            assert (after.usage, after.finish) == (before.usage, before.finish)
            assert (after.untrainable or "").startswith("re-served from turn")
        assert [turn.parent_id for turn in now] == [None, now[0].id, now[1].id]


@pytest.mark.usefixtures("recorded")
async def test_calls_are_matched_by_what_they_say_and_not_by_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as url:
        main, sub = Harness(url, "new"), Harness(url, "new", system=said("sub"))
        replies = await asyncio.gather(sub.ask("agent"), main.ask("one"))
        assert [reply["choices"][0]["message"]["content"] for reply in replies] == ["a subagent's", "first reply"]


@pytest.mark.usefixtures("recorded")
async def test_what_tells_of_the_moment_may_differ(tmp_path: Path) -> None:
    later = {"role": "system", "content": SYSTEM["content"].replace("2026-01-01", "2027-05-31")}
    async with serving(tmp_path) as url:
        harness = Harness(url, "new", system=later)
        await harness.ask("one")
        await harness.ask("two")
    async with looked_at(tmp_path) as reader:
        old, new = (reader.turns(reader.session(name)) for name in ("old", "new"))
        assert reader.prompt_ids(new[1]) == reader.prompt_ids(old[1])


@pytest.mark.usefixtures("recorded")
async def test_a_difference_is_named_to_the_byte(tmp_path: Path) -> None:
    async with serving(tmp_path) as url:
        harness = Harness(url, "new")
        await harness.ask("one")
        error = await harness.ask("twö", status=404)
        told = error["error"]["message"]
        assert "not in session 'old': message 4 (user), content, byte 2: stored 'two', now 'twö'" in told
        assert "(nearest is turn 2)" in told
    async with looked_at(tmp_path) as reader:
        failed = reader.turns(reader.session("new"))[-1]
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error["message"] == told


@pytest.mark.usefixtures("recorded")
async def test_what_no_two_runs_say_alike_can_be_ignored(tmp_path: Path) -> None:
    async with serving(tmp_path, ignore=("w[0-9ö]*",)) as url:
        harness = Harness(url, "new")
        await harness.ask("one")
        told = (await harness.ask("tw2öx", status=404))["error"]["message"]
        assert "message 4 (user), content, byte 5: stored 'to', now 'tx'" in told
        harness.history.pop()
        await harness.ask("tw123o")


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tools": [{"type": "function", "function": {"name": "edit"}}]}, "tools: added edit, removed bash"),
        ({"temperature": 0.25}, "temperature: stored None, now 0.25 (turn 1)"),
    ],
)
async def test_differences_beside_the_messages(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    async with serving(tmp_path) as url:
        error = await Harness(url, "new").ask("one", status=404, **change)
        assert says in error["error"]["message"]


@pytest.mark.usefixtures("recorded")
async def test_other_instructions_are_named_by_their_line(tmp_path: Path) -> None:
    other = {"role": "system", "content": SYSTEM["content"].replace("Be brief", "Be long")}
    async with serving(tmp_path) as url:
        told = (await Harness(url, "new", system=other).ask("one", status=404))["error"]["message"]
    place = SYSTEM["content"].index("brief") + 1
    assert f"message 1 (system), content, byte {place - 1}" in told


@pytest.mark.usefixtures("recorded")
async def test_the_refusal_is_one_that_is_not_sent_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as url, aiohttp.ClientSession() as http:
        asked = {"model": "m", "input": "something else"}
        headers = {SESSION_HEADER: "new", TOKEN_HEADER: "t"}
        async with http.post(f"{url}/v1/responses", json=asked, headers=headers) as reply:
            assert (reply.status, reply.headers.get("retry-after")) == (400, None)
            assert "not in session 'old'" in (await reply.json())["error"]["message"]


@pytest.mark.usefixtures("recorded")
async def test_a_call_that_was_made_once_is_answered_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as url:
        await Harness(url, "new").ask("one")
        error = await Harness(url, "new").ask("one", status=404)
        assert "the session sent it once, and not again" in error["error"]["message"]
        await Harness(url, "another").ask("one")


@pytest.mark.usefixtures("recorded")
async def test_a_run_may_not_go_into_the_session_it_replays(tmp_path: Path) -> None:
    async with serving(tmp_path) as url:
        error = await Harness(url, "old").ask("one", status=404)
        assert "give the run another name" in error["error"]["message"]


async def test_on_a_difference_it_may_go_on_live(recorded: ScriptedEngine, tmp_path: Path) -> None:
    recorded.say("live reply")
    async with serving(tmp_path, recorded.url, then="live") as url:
        harness = Harness(url, "new")
        await harness.ask("one")
        reply = await harness.ask("something else")
        assert reply["choices"][0]["message"]["content"] == "live reply"
    async with looked_at(tmp_path) as reader:
        first, second = reader.turns(reader.session("new"))
        assert (second.parent_id, second.replays, second.untrainable) == (first.id, None, None)
        assert reader.prompt_ids(second)[: first.prompt_length] == reader.prompt_ids(first)


async def test_a_fork_is_stored_up_to_a_turn_and_live_from_there(recorded: ScriptedEngine, tmp_path: Path) -> None:
    recorded.say("another way")
    edits = (("two", "2"), ("three", "drei"))
    async with serving(tmp_path, recorded.url, until=2, sampling={"temperature": 0.5}, edits=edits) as url:
        harness = Harness(url, "branch")
        await harness.ask("ONE", status=404)  # before the fork the stored session is kept to
        harness.history = [SYSTEM]
        for words in ("one", "two", "three"):
            reply = await harness.ask(words)
        assert reply["choices"][0]["message"]["content"] == "another way"
        assert recorded.requests[-1]["temperature"] == 0.5
    async with looked_at(tmp_path) as reader:
        branch = reader.session("branch")
        assert branch.meta == {"replays": "old", "fork_at": 2}
        *_, second, third = reader.turns(branch)
        old = reader.turns(reader.session("old"))
        assert second.replays == old[1].id
        assert (third.parent_id, third.replays, third.untrainable) == (second.id, None, None)
        assert reader.new_messages(third) == [said("drei")]  # and the prefix is as it was


@pytest.mark.usefixtures("recorded")
async def test_the_recorded_pace(tmp_path: Path) -> None:
    async with looked_at(tmp_path) as reader:
        with reader.store.write() as connection:
            connection.execute(text("UPDATE turn SET first_token_at = received_at + 0.3, done_at = received_at + 0.6"))
    async with serving(tmp_path, cadence="recorded") as url:
        began = time.perf_counter()
        await Harness(url, "new").ask("one")
        slow = time.perf_counter() - began
    async with serving(tmp_path) as url:
        began = time.perf_counter()
        await Harness(url, "fast").ask("one")
        assert time.perf_counter() - began < slow
    assert slow >= 0.6


@pytest.mark.usefixtures("recorded")
async def test_what_cannot_be_replayed_is_refused_at_the_start(tmp_path: Path) -> None:
    wrong = (ReserveOptions(session="olt"), "near: old"), (ReserveOptions(session="old", until=9), "no turn 9")
    for options, says in wrong:
        service = Service(
            ServiceOptions(
                engine=NOWHERE, store=f"sqlite:///{tmp_path / 'record.db'}", model=str(TINY),
                reserve=options,
            )
        )  # fmt: skip
        with pytest.raises(CallError, match=says):
            await service.start()
        await service.stop()


def test_overrides_and_edits_are_read_strictly() -> None:
    assert parse_sampling('{"temperature": 0.5}') == {"temperature": 0.5}
    assert parse_edits('[["a", ""]]') == (("a", ""),)
    assert (parse_sampling(""), parse_edits("")) == ({}, ())
    for wrong in ("{", "[]", '{"heat": 1}'):
        with pytest.raises(ValueError, match="JSON"):
            parse_sampling(wrong)
    assert parse_ignore('["a+"]') == ("a+",)
    for wrong in ("{", "[1]", '["("]'):
        with pytest.raises(ValueError, match=r"JSON|no regular expression"):
            parse_ignore(wrong)
    for wrong in ("{", '["ab"]', '[["", "x"]]', '[["a", 1]]'):
        with pytest.raises(ValueError, match="JSON"):
            parse_edits(wrong)
