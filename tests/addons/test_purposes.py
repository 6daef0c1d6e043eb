"""Purposes that a call is told by alone; those that a session tells are in test_conversations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from addons.caller import Caller, Kind
from addons.conversation import Call, Conversation, Message, Sampling, Tool
from addons.lineage import trail
from addons.purposes import Known, asks_for_summary, purpose_of
from replay.records import Purpose

NEW = Known(begun=False, same_head=False, offers_tools=False, agent=None)
CALLER = Caller("h", "s", None, "claude-cli", "2", 0, credential=b"its key")
RUNNING = Known(begun=True, same_head=False, offers_tools=True, agent=CALLER)


def call(system: str = "", user: str = "hi", *, tools: bool = False, reply: bool = False) -> Call:
    said = [Message("user", "task"), Message("assistant", "done")] if reply else []
    told = [Message("system", system)] if system else []
    conversation = Conversation((*told, *said, Message("user", user)), (Tool("bash"),) if tools else ())
    return Call(conversation, Sampling(), "m", stream=False)


def purpose(
    of: Call, caller: Caller = CALLER, parent: Purpose | None = None, known: Known = NEW, *, continues: bool = False
) -> Purpose:
    return purpose_of(of, trail(of.conversation), caller, parent, known, continues=continues)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("main", "main"), ("subagent", "subagent"), ("compaction", "compaction"), ("side", "title")],
)
def test_the_harness_knows_best(kind: Kind, expected: Purpose) -> None:
    assert purpose(call(tools=True), replace(CALLER, kind=kind), known=RUNNING) == expected
    assert purpose(call(tools=True), replace(CALLER, kind=kind), "subagent") == expected


def test_a_side_call_with_a_schema_classifies() -> None:
    asked = replace(call(), constraint={"json": {}})
    assert purpose(asked, replace(CALLER, kind="side")) == "classifier"
    assert purpose(asked) == "classifier"
    assert purpose(replace(call(tools=True), constraint={"json": {}})) == "main"


def test_one_token_is_a_probe() -> None:
    assert purpose(replace(call(), sampling=Sampling(max_tokens=1))) == "probe"
    assert purpose(replace(call(), sampling=Sampling(max_tokens=2))) == "main"


@pytest.mark.parametrize(
    ("parent", "expected"), [("main", "main"), ("subagent", "subagent"), ("title", "title"), ("compaction", "main")]
)
def test_what_goes_on_is_what_it_was(parent: Purpose, expected: Purpose) -> None:
    assert purpose(call(reply=True), parent=parent, known=RUNNING) == expected


def test_beginnings() -> None:
    assert purpose(call(tools=True)) == "main"
    assert purpose(call(tools=True), known=RUNNING) == "subagent"
    assert purpose(call(tools=True), known=replace(RUNNING, same_head=True)) == "main"
    assert purpose(call(), known=RUNNING) == "title"
    assert purpose(call(), known=replace(RUNNING, offers_tools=False)) == "subagent"


SUMMARISE = "Write a detailed summary of the conversation so far."


def test_what_the_agent_started_is_its_own() -> None:
    """Another program: whatever it asks for, and whatever it says of itself."""
    curl = replace(CALLER, harness="curl", harness_version="8")
    for asked in (call(), call(tools=True), call(user=SUMMARISE, reply=True), call(system="You write titles.")):
        assert purpose(asked, curl, known=RUNNING) == "agent_authored"
        assert purpose(asked, curl, known=replace(RUNNING, same_head=True)) == "agent_authored"
    assert purpose(call(tools=True), replace(curl, harness="codex", kind="main"), known=RUNNING) == "agent_authored"
    assert purpose(call(reply=True), curl, "main", RUNNING) == "agent_authored", "it only begins as the agent's"
    assert purpose(call(reply=True), curl, "main", RUNNING, continues=True) == "main", "it goes on with it"
    assert purpose(call(tools=True), curl) == "main", "it is the first: a session of its own"


@pytest.mark.parametrize(
    "unlike", [{"harness": None}, {"harness_version": "3"}, {"credential": b"other"}, {"credential": None}]
)
def test_what_is_not_quite_the_agent(unlike: dict[str, Any]) -> None:
    caller = replace(CALLER, **unlike)
    assert purpose(call(tools=True), caller, known=RUNNING) == "agent_authored"
    assert purpose(call(), caller, known=RUNNING) == "agent_authored"
    assert purpose(call(tools=True), caller, known=replace(RUNNING, same_head=True)) == "main"
    assert purpose(call(tools=True), replace(caller, kind="subagent"), known=RUNNING) == "subagent"


def test_another_provider_may_want_another_key() -> None:
    assert purpose(call(), replace(CALLER, host="other", credential=b"other"), known=RUNNING) == "title"


@pytest.mark.parametrize(
    "text",
    [
        "Your task is to create a detailed summary of the conversation so far.",
        "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another model.",
        "Generate a new <state_snapshot> based on the provided history.",
        "Summarize the conversation above so that the work can go on.",
        "Provide a detailed prompt for continuing our conversation above.",
        "Compress the entire history into a structure.",
    ],
)
def test_asked_for_a_summary(text: str) -> None:
    assert asks_for_summary(trail(call(user=text, tools=True, reply=True).conversation))
    assert not asks_for_summary(trail(call(user=text, tools=True).conversation))  # there is nothing to summarise
    assert purpose(call(user=text, tools=True, reply=True), parent="main") == "compaction"


@pytest.mark.parametrize(
    "text",
    [
        "Summarize the history of Rome.",
        "Write a summary of README.md to SUMMARY.md",
        "The session test fails; fix it and continue.",
        "Add a command that compacts the database.",
        "Find the title of the document in a.txt and put it into the file title.txt.",
    ],
)
def test_asked_for_something_else(text: str) -> None:
    assert purpose(call(system="You are an agent.", user=text, tools=True, reply=True), parent="main") == "main"
    assert purpose(call(system="You are an agent.", user=text)) == "main"


@pytest.mark.parametrize(
    ("system", "user"),
    [
        ("You are a title generator. You output only a thread title.", "list the files"),
        ("Generate a concise, sentence-case title of three to seven words.", "list the files"),
        ("You write concise one-line Git commit messages based on the diffs.", "diff --git a/a"),
        ("", "Write a short title for this chat: list the files"),
        ("Generate a git branch name for the task.", "list the files"),
    ],
)
def test_asked_for_a_title(system: str, user: str) -> None:
    assert purpose(call(system=system, user=user)) == "title"


def test_a_summary_of_a_quoted_conversation() -> None:
    """As Pi asks for it: in one message, without tools."""
    asked = call(
        system="You are a context summarization assistant. Read a conversation, then write a summary of it.",
        user="<conversation>[User]: list the files</conversation>",
    )
    assert purpose(asked, known=RUNNING) == "compaction"
