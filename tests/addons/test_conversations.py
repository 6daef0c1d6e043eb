"""Whole conversations through the gateway: each call lands where it belongs, whatever the harness does to its history.

The harnesses here are small ones written for the test; they do to their messages what real ones were seen to do.
"""

from __future__ import annotations

import copy
import itertools
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import event

from addons.model import ModelFiles
from replay.schema import Turn
from tests.conftest import Rig, rigged

Body = dict[str, Any]

BASH: Body = {
    "name": "bash",
    "description": "Run it.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}, "n": {"type": "number"}}},
}
READ: Body = {"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
AGENT: Body = {"name": "agent", "input_schema": {"type": "object", "properties": {"prompt": {"type": "string"}}}}
LS = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls", "n": 1}}\n</tool_call>'
SYSTEM = "You are an agent."


@dataclass
class Harness:
    """A harness that speaks Messages: it keeps its history, and calls bash until it is told something else."""

    rig: Rig
    http: aiohttp.ClientSession
    system: Any = SYSTEM
    tools: list[Body] = field(default_factory=lambda: [BASH, READ])
    headers: dict[str, str] = field(default_factory=dict)
    session: str = "run"
    agent: str = "claude-cli/2.1.0 (external)"
    messages: list[Body] = field(default_factory=list)

    async def ask(self, model_says: str, **more: Any) -> Body:
        """One call with the history as it is; what the model says is its reply."""
        self.rig.engine.say(model_says)
        body = {"model": "m", "max_tokens": 256, "system": self.system, "tools": self.tools, "messages": self.messages}
        body |= more
        body = {key: value for key, value in body.items() if value not in (None, [])}
        headers = {"x-claude-code-session-id": self.session, "user-agent": self.agent, **self.headers}
        async with self.http.post(f"{self.rig.url}/v1/messages", json=body, headers=headers) as response:
            reply: Body = await response.json()
            assert response.status == 200, reply
        return reply

    async def turn(self, model_says: str = LS, result: str = "a.txt", **more: Any) -> Body:
        """One call, its reply and the results of its calls put into the history."""
        reply = await self.ask(model_says, **more)
        self.messages.append({"role": "assistant", "content": reply["content"]})
        calls = [block for block in reply["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": result} for call in calls]
        self.messages.append({"role": "user", "content": results or "go on"})
        return reply


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def harness(rig: Rig, http: aiohttp.ClientSession) -> Harness:
    return Harness(rig, http, messages=[{"role": "user", "content": "list the files"}])


def turns(rig: Rig) -> list[Turn]:
    found = [turn for session in rig.reader.sessions() for turn in rig.reader.turns(session)]
    return sorted(found, key=lambda turn: turn.id)


def parents(rig: Rig) -> list[int | None]:
    """Each turn's parent, counted from 0."""
    found = turns(rig)
    places = {turn.id: place for place, turn in enumerate(found)}
    return [None if turn.parent_id is None else places[turn.parent_id] for turn in found]


def is_one_sequence(rig: Rig) -> bool:
    """One root, and each prompt the parent's with what was sampled, token by token, and more."""
    chain = turns(rig)
    for parent, child in itertools.pairwise(chain):
        kept = rig.reader.prompt_ids(parent) + rig.reader.sampled(parent)[0]
        if child.parent_id != parent.id or rig.reader.prompt_ids(child)[: len(kept)] != kept:
            return False
    return chain[0].parent_id is None


# What harnesses do to their history between two calls, and stay the same conversation. Each gets the harness and the
# number of the call to come; the text is what a drift note must say, None where nothing is different for the model.


def _blocks(harness: Harness, kind: str) -> list[Body]:
    lists = [m["content"] for m in harness.messages if isinstance(m["content"], list)]
    return [block for blocks in lists for block in blocks if block["type"] == kind]


def reserialise(harness: Harness, number: int) -> None:
    for block in _blocks(harness, "tool_use"):
        block["input"] = {"n": 1.0, "command": block["input"]["command"], "timeout": None}


def rewrite_ids(harness: Harness, number: int) -> None:
    for block in _blocks(harness, "tool_use"):
        block["id"] = f"toolu_{number}{block['id'].removeprefix('toolu_')}"
    for block in _blocks(harness, "tool_result"):
        block["tool_use_id"] = f"toolu_{number}{block['tool_use_id'].removeprefix('toolu_')}"


def string_or_list(harness: Harness, number: int) -> None:
    first = harness.messages[0]
    plain = isinstance(first["content"], str)
    first["content"] = [{"type": "text", "text": first["content"]}] if plain else first["content"][0]["text"]
    for block in _blocks(harness, "tool_result"):
        block["content"] = [{"type": "text", "text": "a.txt"}] if number % 2 else "a.txt"


def move_cache_control(harness: Harness, number: int) -> None:
    for block in _blocks(harness, "tool_result"):
        block.pop("cache_control", None)
    if results := _blocks(harness, "tool_result"):
        results[-1]["cache_control"] = {"type": "ephemeral"}


def drop_reasoning(harness: Harness, number: int) -> None:
    for message in harness.messages[1::2]:
        message["content"] = [block for block in message["content"] if block["type"] != "thinking"]


def sign_reasoning(harness: Harness, number: int) -> None:
    for block in _blocks(harness, "thinking"):
        block["signature"] = f"signed{number}"


def billing_header(harness: Harness, number: int) -> None:
    header = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch=0{number}f;"}
    harness.system = [header, {"type": "text", "text": SYSTEM}]


def other_header(harness: Harness, number: int) -> None:
    harness.system = f"x-acme-request: {number}\n{SYSTEM}"


def date(harness: Harness, number: int) -> None:
    harness.system = f"{SYSTEM}\nToday is Mon Mar {number + 1} 2026, 10:0{number}."


def git_status(harness: Harness, number: int) -> None:
    files = "".join(f"M file{'x' * at}.py\n" for at in range(number))
    harness.system = f"{SYSTEM}\n\n# Environment\ngit status:\n{files}\n<env>cwd: /w{'w' * number}</env>"


def reorder_tools(harness: Harness, number: int) -> None:
    harness.tools = [BASH, READ] if number % 2 else [READ, BASH]


def describe_tools(harness: Harness, number: int) -> None:
    harness.tools = [{**BASH, "description": f"Run it. {'It is late. ' * number}"}, READ]


def add_reminder(harness: Harness, number: int) -> None:
    content = [{"type": "text", "text": f"<system-reminder>\nnumber {number}\n</system-reminder>"}] * (number > 0)
    harness.messages[0]["content"] = [*content, {"type": "text", "text": "list the files"}]


def remove_reminder(harness: Harness, number: int) -> None:
    for message in harness.messages[:-1]:
        if message["role"] == "user" and isinstance(message["content"], list):
            message["content"] = [block for block in message["content"] if block["type"] != "text"] or "list the files"
    last = harness.messages[-1]
    if isinstance(last["content"], list):
        last["content"].append({"type": "text", "text": "<system-reminder>use your tools</system-reminder>"})


def white_space(harness: Harness, number: int) -> None:
    harness.system = SYSTEM + "\n" * number
    harness.messages[0]["content"] = "list the files" + " " * number


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (reserialise, None), (rewrite_ids, None), (string_or_list, None), (move_cache_control, None),
        (drop_reasoning, None), (sign_reasoning, None), (billing_header, None),
        (other_header, "system: was 'x-acme-request: 2"), (date, "system: was …'"),
        (git_status, "system: was …'"), (reorder_tools, "tools: reordered"),
        (describe_tools, "tools.bash.description: was"), (add_reminder, "messages[1]: was"),
        (remove_reminder, "messages[6]: was '<system-reminder>use your tools"), (white_space, "system: was "),
    ],
)  # fmt: skip
async def test_what_harnesses_do_and_stay_one_sequence(
    harness: Harness, change: Callable[[Harness, int], None], note: str | None
) -> None:
    for number in range(4):
        change(harness, number)
        await harness.turn("<think>\nI look.\n</think>\n\n" + LS if "reasoning" in change.__name__ else LS)
    assert is_one_sequence(harness.rig)
    detail = turns(harness.rig)[-1].drift_detail
    if note is None:
        assert detail is None
    else:
        assert detail is not None
        assert note in detail


async def test_a_note_shows_what_the_model_saw_and_what_it_would_see_now(harness: Harness) -> None:
    harness.system = f"{SYSTEM} It is 10:00."
    await harness.turn()
    harness.system = f"{SYSTEM} It is 11:30."
    await harness.turn()
    await harness.turn()
    notes = [turn.drift_detail for turn in turns(harness.rig)]
    assert notes == [None, "system: was …'re an agent. It is 10:00.', is …'re an agent. It is 11:30.'", None]


# What makes it another prompt.


def grow_tools(harness: Harness) -> None:
    harness.tools = [*harness.tools, AGENT]


def shrink_tools(harness: Harness) -> None:
    harness.tools = [BASH]


def change_parameters(harness: Harness) -> None:
    harness.tools = [{**BASH, "input_schema": {"type": "object", "properties": {"script": {"type": "string"}}}}, READ]


def instruct_otherwise(harness: Harness) -> None:
    harness.system = f"{SYSTEM}\nDo not write files."


def switch_mode(harness: Harness) -> None:
    harness.system = SYSTEM + "\n\nGo on."


def clear_old_result(harness: Harness) -> None:
    harness.messages[2]["content"][0]["content"] = "[cleared]"


def edit_reply(harness: Harness) -> None:
    harness.messages[1]["content"][0]["input"]["command"] = "rm"


def edit_task(harness: Harness) -> None:
    harness.messages[0]["content"] = "count the files"


def drop_the_beginning(harness: Harness) -> None:
    del harness.messages[1:3]


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        (grow_tools, "harness_rewrote", "after turn 3: tools: added agent"),
        (shrink_tools, "harness_rewrote", "after turn 3: tools: removed read"),
        (change_parameters, "harness_rewrote", "after turn 3: tools: parameters of bash changed"),
        (
            instruct_otherwise,
            "harness_rewrote",
            "after turn 3: system: was 'You are an agent.', is 'You are an agent.\\nDo not write files.'",
        ),
        (clear_old_result, "harness_rewrote", "after turn 1: messages[3] (tool): was 'a.txt', is '[cleared]'"),
        (edit_reply, "harness_rewrote", "messages[2] (assistant): was"),
        (edit_task, "harness_rewrote", "its assistant messages are none of this session's replies"),
        (drop_the_beginning, "harness_rewrote", "messages[3] (tool): was 'a.txt', is 'b.txt'"),
    ],
)
async def test_what_makes_it_another_prompt(
    harness: Harness, change: Callable[[Harness], None], reason: str, detail: str
) -> None:
    for result in ("a.txt", "b.txt", "c.txt"):
        await harness.turn(result=result)
    change(harness)
    await harness.turn()
    await harness.turn()
    found = turns(harness.rig)
    assert parents(harness.rig) == [None, 0, 1, None, 3]
    assert (found[3].drift_reason, found[3].purpose) == (reason, "main")
    assert detail in (found[3].drift_detail or "")


async def test_only_header_lines_changed(harness: Harness) -> None:
    harness.system = "Mode: plan\nName: a\n\nYou are an agent."
    await harness.turn()
    harness.system = "Mode: act\nName: a\n\nYou are an agent."
    await harness.turn()
    assert turns(harness.rig)[1].drift_reason == "volatile_header"
    assert "was 'Mode: plan" in (turns(harness.rig)[1].drift_detail or "")


async def test_a_reply_of_which_the_beginning_was_kept(harness: Harness) -> None:
    await harness.turn("I will look at all the files.")
    harness.messages[1]["content"] = [{"type": "text", "text": "I will look"}]
    await harness.turn()
    fork = turns(harness.rig)[1]
    assert (fork.drift_reason, fork.purpose) == ("truncated", "main")
    assert fork.drift_detail == "messages[2] (assistant): was 'I will look at all the files.', is 'I will look'"


async def test_a_rewind_branches_from_the_turn_it_goes_back_to(harness: Harness) -> None:
    for _ in range(3):
        await harness.turn()
    del harness.messages[5:]
    harness.messages[-1]["content"].append({"type": "text", "text": "try something else"})
    await harness.turn()
    await harness.turn()
    assert parents(harness.rig) == [None, 0, 1, 1, 3]
    assert {turn.purpose for turn in turns(harness.rig)} == {"main"}


async def test_the_same_call_again_is_the_same_root_again(harness: Harness) -> None:
    first = copy.deepcopy(harness.messages)
    await harness.turn()
    harness.messages = first
    await harness.turn()
    await harness.turn()
    again = turns(harness.rig)[1]
    assert parents(harness.rig) == [None, None, 1]
    assert (again.drift_reason, again.purpose) == ("first", "main")
    assert again.drift_detail == f"the call of turn {again.id - 1} again"


# More than one conversation in a session.


def subagent(harness: Harness, task: str, **headers: str) -> Harness:
    other = Harness(harness.rig, harness.http, "You search.", [READ], headers)
    other.messages = [{"role": "user", "content": task}]
    return other


def placed(rig: Rig) -> list[tuple[int | None, str | None, str]]:
    found = zip(parents(rig), turns(rig), strict=True)
    return [(parent, turn.drift_reason, turn.purpose) for parent, turn in found]


async def test_parallel_subagents_between_the_turns_of_the_main_agent(harness: Harness) -> None:
    one = subagent(harness, "find a", **{"x-claude-code-agent-id": "a1"})
    two = subagent(harness, "find b")  # an older version, which says nothing
    await harness.turn()
    for who in (one, two, harness, two, one, harness):
        await who.turn()
    assert placed(harness.rig) == [
        (None, "first", "main"),
        (None, "subagent", "subagent"),
        (None, "subagent", "subagent"),
        (0, None, "main"),
        (2, None, "subagent"),
        (1, None, "subagent"),
        (3, None, "main"),
    ]
    assert [turn.thread for turn in turns(harness.rig)] == ["run", "a1", "run", "run", "run", "a1", "run"]


@pytest.mark.parametrize("says", [LS, "nothing to see"], ids=["call ids", "thread"])
async def test_subagents_that_say_the_same_continue_each_their_own(harness: Harness, says: str) -> None:
    named = "thread" if says != LS else ""
    headers = [{"x-claude-code-agent-id": f"a{n}"} if named else {} for n in range(3)]
    agents = [subagent(harness, "find it", **one) for one in headers]
    await harness.turn()
    for agent in agents:
        await agent.turn(says)
    for agent in agents:
        await agent.turn()
    assert parents(harness.rig) == [None, None, None, None, 1, 2, 3]
    assert [turn.purpose for turn in turns(harness.rig)] == ["main"] + ["subagent"] * 6


async def test_a_subagent_that_begins_with_the_main_agents_history(harness: Harness) -> None:
    await harness.turn()
    fork = Harness(harness.rig, harness.http, headers={"x-claude-code-agent-id": "fork"})
    fork.messages = copy.deepcopy(harness.messages)
    fork.messages[-1]["content"].append({"type": "text", "text": "only the tests"})
    await fork.turn()
    await harness.turn()
    await fork.turn()
    assert [(p, purpose) for p, _, purpose in placed(harness.rig)] == [
        (None, "main"), (0, "subagent"), (0, "main"), (1, "subagent"),
    ]  # fmt: skip


MODELS: Body = {
    "type": "json_schema",
    "schema": {"type": "object", "properties": {"model": {"enum": ["pro", "flash"]}}},
}
TITLE = "Generate a short title for the conversation, three to seven words."


@pytest.mark.parametrize(
    ("call", "purpose"),
    [
        ({"system": TITLE, "tools": None}, "title"),
        ({"system": None, "tools": None, "messages": [{"role": "user", "content": f"{TITLE}\nlist"}]}, "title"),
        ({"system": "You write concise, one-line commit messages for the diff.", "tools": None}, "title"),
        ({"max_tokens": 1, "system": None, "tools": None, "messages": [{"role": "user", "content": "quota"}]}, "probe"),
        ({"system": "Which model is right?", "tools": None, "output_config": {"format": MODELS}}, "classifier"),
    ],
    ids=["title", "title without instructions", "commit message", "probe", "classifier"],
)  # fmt: skip
@pytest.mark.parametrize("before", [True, False], ids=["before", "between"])
async def test_side_calls(harness: Harness, call: Body, purpose: str, before: bool) -> None:
    says = '{"model": "pro"}' if purpose == "classifier" else "x"
    if before:
        await harness.ask(says, **call)
    await harness.turn()
    if not before:
        await harness.ask(says, **call)
    await harness.turn()
    found = placed(harness.rig)
    side = found.pop(0 if before else 1)
    assert side == (None, "subagent", purpose)
    assert [(reason, purpose) for _, reason, purpose in found] == [("first", "main"), (None, "main")]


async def test_a_call_without_tools_before_the_first_with_tools_was_a_side_call(harness: Harness) -> None:
    """Nothing in it tells; the call with tools does."""
    await harness.ask("Looking around", system="Say it in five words.", tools=None)
    assert placed(harness.rig) == [(None, "first", "main")]
    await harness.turn()
    await harness.ask("Looked around", system="Say it in five words.", tools=None)
    assert placed(harness.rig) == [
        (None, "subagent", "title"), (None, "first", "main"), (None, "subagent", "title"),
    ]  # fmt: skip


async def test_an_agent_without_tools_that_was_continued_stays_the_agent(harness: Harness) -> None:
    harness.tools = []
    await harness.turn("one")
    await harness.turn("two")
    await subagent(harness, "find it").turn()
    assert [purpose for _, _, purpose in placed(harness.rig)] == ["main", "main", "subagent"]


async def test_what_the_harness_says_goes_before_what_a_call_looks_like(harness: Harness) -> None:
    harness.headers = {"x-claude-code-request-class": "main"}
    await harness.turn()
    harness.messages[-1]["content"].append({"type": "text", "text": "Write a summary of the conversation so far."})
    await harness.turn("a summary")
    harness.headers = {"x-claude-code-request-class": "auxiliary"}
    await harness.ask("Files", messages=[{"role": "user", "content": "name it"}])
    assert [purpose for _, _, purpose in placed(harness.rig)] == ["main", "main", "title"]


async def test_a_program_that_the_agent_wrote(harness: Harness) -> None:
    await harness.turn()
    script = Harness(harness.rig, harness.http, None, [], agent="OpenAI/Python 2.1.0")
    script.messages = [{"role": "user", "content": "is this text rude?"}]
    await script.ask("no")
    assert placed(harness.rig)[1] == (None, "subagent", "agent_authored")


async def test_another_conversation_of_the_same_agent(harness: Harness) -> None:
    await harness.turn()
    harness.messages = [{"role": "user", "content": "count them"}]
    await harness.turn()
    assert placed(harness.rig) == [(None, "first", "main")] * 2


# Compaction.

SUMMARY = "1. The user wants a list of the files.\n2. The file a.txt was found in the folder.\n3. Count them next."
ASKED = "Your task is to write a detailed summary of the conversation so far."


async def test_compaction_within_the_conversation(harness: Harness) -> None:
    """As Claude Code does it: asked for behind the whole history, then a new history that begins with the summary."""
    await harness.turn()
    await harness.turn()
    await harness.ask(
        f"<analysis>hm</analysis><summary>{SUMMARY}</summary>",
        messages=[*harness.messages, {"role": "user", "content": ASKED}],
    )
    harness.messages = [{"role": "user", "content": f"It goes on from an earlier conversation:\n{SUMMARY}\nGo on."}]
    await harness.turn()
    await harness.turn()
    assert placed(harness.rig) == [
        (None, "first", "main"),
        (0, None, "main"),
        (1, None, "compaction"),
        (None, "compaction", "main"),
        (3, None, "main"),
    ]


async def test_compaction_beside_the_conversation(harness: Harness) -> None:
    """As Gemini CLI does it: other instructions, no tools; then the summary, a made-up reply, and the last turns."""
    for _ in range(3):
        await harness.turn()
    asked = {"role": "user", "content": "Generate a new <state_snapshot> based on the provided history."}
    await harness.ask(
        f"<state_snapshot>{SUMMARY}</state_snapshot>", messages=[*harness.messages[:4], asked], tools=None,
        system="You summarize the internal chat history into a given structure.",
    )  # fmt: skip
    kept = harness.messages[5:]
    harness.messages = [
        {"role": "user", "content": f"<state_snapshot>{SUMMARY}</state_snapshot>"},
        {"role": "assistant", "content": "Got it."},
        *kept,
    ]
    await harness.turn()
    await harness.turn()
    assert placed(harness.rig)[3:] == [
        (None, "subagent", "compaction"), (None, "compaction", "main"), (4, None, "main"),
    ]  # fmt: skip


async def test_compaction_as_the_harness_says(harness: Harness) -> None:
    await harness.turn()
    harness.headers = {"x-claude-code-request-class": "compaction", "x-claude-code-compaction": "auto"}
    await harness.ask("all is well", messages=[*harness.messages, {"role": "user", "content": "Now tell me."}])
    harness.headers = {"x-claude-code-request-class": "main", "x-claude-code-context-compacted": "auto"}
    harness.messages = [{"role": "user", "content": "All was well. Go on."}]
    await harness.turn()
    assert placed(harness.rig)[1:] == [(0, None, "compaction"), (None, "compaction", "main")]


async def test_what_goes_on_after_a_summary_in_place_is_the_agents(harness: Harness) -> None:
    await harness.turn()
    harness.messages.append({"role": "user", "content": ASKED})
    await harness.turn(SUMMARY)
    await harness.turn()
    assert [purpose for _, _, purpose in placed(harness.rig)] == ["main", "compaction", "main"]


# Restarts, retries, and what it all costs.


async def test_a_restarted_proxy_knows_it_all(tiny: ModelFiles, tmp_path: Path, http: aiohttp.ClientSession) -> None:
    """Conversations, what was sent, threads, summaries, and who is the agent come from the record."""
    messages: list[Body] = [{"role": "user", "content": "list the files"}]
    async with rigged(tiny, tmp_path) as rig:
        harness = Harness(rig, http, f"{SYSTEM} It is 10:00.", messages=messages)
        await harness.turn()
        twins = [subagent(harness, "find it", **{"x-claude-code-agent-id": f"a{n}"}) for n in range(2)]
        for twin in twins:
            await twin.turn("nothing")
        await harness.ask(SUMMARY, messages=[*messages, {"role": "user", "content": ASKED}])
    async with rigged(tiny, tmp_path) as rig:
        harness = Harness(rig, http, f"{SYSTEM} It is 11:30.", messages=messages)
        await harness.turn()
        twins[0].rig = rig
        await twins[0].turn()
        other = Harness(rig, http, "Name it.", [], messages=[{"role": "user", "content": "list the files"}])
        await other.ask("Files")
        harness.messages = [{"role": "user", "content": f"Earlier:\n{SUMMARY}"}]
        await harness.turn()
        assert placed(rig)[4:] == [
            (0, None, "main"), (1, None, "subagent"), (None, "subagent", "title"), (None, "compaction", "main"),
        ]  # fmt: skip
        assert "is …'re an agent. It is 11:30.'" in (turns(rig)[4].drift_detail or "")


async def test_a_call_tried_again_at_a_restarted_proxy_is_its_retry(
    tiny: ModelFiles, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    async with rigged(tiny, tmp_path) as rig:
        harness = Harness(rig, http, messages=[{"role": "user", "content": "list the files"}])
        rig.engine.say(LS, die_after=1)
        rig.engine.scripts.append(rig.engine.scripts[0])
        with pytest.raises(AssertionError):
            await harness.ask("never said")
    async with rigged(tiny, tmp_path) as rig:
        harness.rig = rig
        await harness.turn()
        await harness.turn()
        failed, retried, after = turns(rig)
        assert (failed.status, retried.retry_of, after.retry_of) == ("failed", failed.id, None)


class Work:
    """What placing asks of the database: statements, and steps of SQLite's machine, which grow with the rows that it
    looks at. The recorder's are not counted: they are shared by the calls that a commit happens to take."""

    def __init__(self, rig: Rig) -> None:
        self.statements = self.steps = 0
        store = rig.service._store
        assert store is not None
        event.listen(store.engine, "checkout", self._watch)
        event.listen(store.engine, "before_cursor_execute", self._count)

    def _watch(self, connection: sqlite3.Connection, *_: object) -> None:
        mine = threading.current_thread().name != "recorder"
        connection.set_progress_handler(self._step if mine else None, 10)

    def _step(self) -> int:
        self.steps += 10
        return 0

    def _count(self, *_: object) -> None:
        self.statements += threading.current_thread().name != "recorder"

    def taken(self) -> tuple[int, int]:
        found = self.statements, self.steps
        self.statements = self.steps = 0
        return found


async def test_placing_costs_the_same_however_long_the_session(harness: Harness) -> None:
    work = Work(harness.rig)
    other = subagent(harness, "find it")
    costs = []
    for number in range(41):
        work.taken()
        await harness.turn()
        costs.append(work.taken())
        if number in (5, 10, 40):
            # A rewind, a fork and a new conversation: what must ask the record.
            branch = replace(harness, messages=copy.deepcopy(harness.messages))
            del branch.messages[7:]
            await branch.ask("x")
            branch.messages[2]["content"][0]["content"] = f"[cleared {number}]"
            await branch.ask("y")
            other.messages = [{"role": "user", "content": f"find {number}"}]
            await other.ask("z")
            costs.append(work.taken())
    early, forks, late, late_forks = costs[4], costs[12], costs[-2], costs[-1]
    assert early == late == (0, 0)
    assert forks[0] == late_forks[0]
    assert late_forks[1] <= 1.5 * forks[1]


# The other dialects.


async def test_codex_over_responses(rig: Rig, http: aiohttp.ClientSession) -> None:
    """One session, a review beside it, and a compaction; as Codex tells them by its headers."""
    tool = {"type": "function", "name": "bash", "parameters": BASH["input_schema"]}

    async def ask(says: str, items: list[Any], **headers: str) -> list[Any]:
        rig.engine.say(says)
        body = {"model": "m", "input": items, "tools": [tool], "instructions": SYSTEM, "store": False}
        async with http.post(f"{rig.url}/v1/responses", json=body, headers={"session-id": "s", **headers}) as response:
            reply = await response.json()
            assert response.status == 200, reply
        output: list[Any] = reply["output"]
        return output

    context = {"role": "user", "content": "<environment_context>cwd: /a</environment_context>"}
    task = {"role": "user", "content": [{"type": "input_text", "text": "list the files"}]}
    main = {"thread-id": "t1"}
    [call] = await ask(LS, [context, task], **main)
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"}
    arguments = json.dumps(dict(reversed(json.loads(call["arguments"]).items())))
    history = [{**context, "content": "<environment_context>cwd: /b</environment_context>"}, task,
               {"type": "reasoning", "summary": []}, {**call, "arguments": arguments, "id": None}, result]  # fmt: skip
    await ask("done", history, **main)
    await ask("fine", [task], **{"thread-id": "t2", "x-openai-subagent": "review"})
    asked = {"role": "user", "content": "Write it down for another model."}
    kind = {"x-codex-turn-metadata": json.dumps({"thread_id": "t1", "request_kind": "compaction"})}
    await ask(SUMMARY, [*history, asked], **main, **kind)
    await ask("done", [task, {"role": "user", "content": f"Another model began. Its summary:\n{SUMMARY}"}], **main)
    assert placed(rig) == [
        (None, "first", "main"),
        (0, None, "main"),
        (None, "subagent", "subagent"),
        (0, None, "compaction"),
        (None, "compaction", "main"),
    ]
    assert "cwd: /a" in (turns(rig)[1].drift_detail or "")


async def test_opencode_sessions_under_one(rig: Rig, http: aiohttp.ClientSession) -> None:
    """A subagent has a session of its own, and names its parent's."""
    tools = [{"type": "function", "function": {"name": "bash", "parameters": BASH["input_schema"]}}]

    async def ask(task: str, **more: Any) -> None:
        rig.engine.say("done")
        headers = {"x-session-id": more.pop("session"), **more.pop("headers", {})}
        messages = [{"role": "system", "content": more.pop("system", SYSTEM)}, {"role": "user", "content": task}]
        body = {"model": "m", "messages": messages, **more}
        async with http.post(f"{rig.url}/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status == 200

    await ask("list the files", session="ses_1", system="You are a title generator. You output only a title.")
    await ask("list the files", session="ses_1", tools=tools)
    await ask("find it", session="ses_2", tools=tools, headers={"x-parent-session-id": "ses_1"})
    assert len(rig.reader.sessions()) == 1
    assert [turn.purpose for turn in turns(rig)] == ["title", "main", "subagent"]
    assert [turn.thread for turn in turns(rig)] == ["ses_1", "ses_1", "ses_2"]


async def test_gemini_with_a_router_first(rig: Rig, http: aiohttp.ClientSession) -> None:
    async def ask(says: str, contents: list[Body], **more: Any) -> Body:
        rig.engine.say(says)
        url = f"{rig.url}/v1beta/models/gemini-pro:generateContent"
        async with http.post(url, json={"contents": contents, **more}, headers={"session-id": "s"}) as response:
            reply: Body = await response.json()
            assert response.status == 200, reply
        content: Body = reply["candidates"][0]["content"]
        return content

    schema = {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT", "properties": {
        "model": {"type": "STRING"}}}}  # fmt: skip
    system = {"systemInstruction": {"parts": [{"text": SYSTEM}]}}
    tools = [{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": BASH["input_schema"]}]}]
    task = {"role": "user", "parts": [{"text": "list the files"}]}
    await ask('{"model": "pro"}', [task], generationConfig=schema)
    called = await ask(LS, [task], tools=tools, **system)
    answer = {"functionResponse": {"name": "bash", "response": {"output": "a.txt"}}}
    for part in called["parts"]:
        part.pop("thoughtSignature", None)
        part.get("functionCall", {}).pop("id", None)
    await ask("done", [task, called, {"role": "user", "parts": [answer]}], tools=tools, **system)
    assert placed(rig) == [(None, "subagent", "classifier"), (None, "first", "main"), (1, None, "main")]
