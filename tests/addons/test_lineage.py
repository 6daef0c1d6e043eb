from __future__ import annotations

from dataclasses import replace

import pytest

from addons.conversation import Conversation, Message, Tool, ToolCall
from addons.lineage import digest_after, drift, opening, prefixes

SYSTEM, TASK = Message("system", "s"), Message("user", "task")


def called(arguments: str, id_: str = "call_a", **more: str) -> Message:
    return Message("assistant", tool_calls=(ToolCall(id_, "bash", arguments),), **more)


def result(text: str, id_: str = "call_a") -> Message:
    return Message("tool", text, tool_call_id=id_)


REPLY = called('{"command": "ls -la"}')
FIRST = Conversation((SYSTEM, TASK))


def continues(*messages: Message, reply: Message = REPLY, first: Conversation = FIRST) -> int:
    """How many messages of the call a stored turn accounts for; 0 when it continues nothing."""
    left = digest_after(first, reply)
    found = [p.messages for p in prefixes(Conversation(messages, first.tools)) if p.digest == left]
    return found[0] if found else 0


def test_the_next_call_continues() -> None:
    assert continues(SYSTEM, TASK, REPLY, result("a.txt")) == 3


@pytest.mark.parametrize(
    "echoed",
    [
        called('{"command":"ls -la"}'),
        called('{ "command" : "ls \\u002dla" }'),
        called('{"command": "ls -la"}', "call_rewritten"),
        replace(REPLY, reasoning="signed, or dropped"),
        replace(REPLY, content="\n"),
    ],
    ids=["re-spaced", "re-escaped", "id rewritten", "reasoning", "blank content"],
)
def test_by_meaning(echoed: Message) -> None:
    assert continues(SYSTEM, TASK, echoed, result("a.txt", echoed.tool_calls[0].id)) == 3


@pytest.mark.parametrize(
    "messages",
    [
        (SYSTEM, TASK),
        (SYSTEM, Message("user", "another"), REPLY, result("a")),
        (Message("system", "other"), TASK, REPLY, result("a")),
        (SYSTEM, TASK, called('{"command": "rm -rf"}'), result("a")),
        (SYSTEM, TASK, replace(REPLY, content="text"), result("a")),
        (SYSTEM, TASK, REPLY),
    ],
    ids=["no reply", "task", "system", "arguments", "text", "prefill"],
)
def test_what_differs_in_meaning_does_not_continue(messages: tuple[Message, ...]) -> None:
    assert continues(*messages) == 0


def test_key_order_is_no_meaning_but_values_are() -> None:
    reply = called('{"a": 1, "b": [1, 2]}')
    assert continues(SYSTEM, TASK, called('{"b": [1, 2], "a": 1}'), result("x"), reply=reply) == 3
    assert continues(SYSTEM, TASK, called('{"b": [2, 1], "a": 1}'), result("x"), reply=reply) == 0


def test_other_tools_are_another_prompt() -> None:
    with_tool = Conversation(FIRST.messages, (Tool("bash"),))
    left = digest_after(with_tool, REPLY)
    longer = (SYSTEM, TASK, REPLY, result("a"))
    assert left in {p.digest for p in prefixes(Conversation(longer, (Tool("bash"),)))}
    assert left not in {p.digest for p in prefixes(Conversation(longer, (Tool("python"),)))}


def test_the_longest_prefix_comes_first() -> None:
    second = called('{"command": "cat a"}', "call_b")
    call = Conversation((SYSTEM, TASK, REPLY, result("a"), second, result("b", "call_b")))
    assert [p.messages for p in prefixes(call)] == [5, 3]


def test_two_results_swapped_are_told_apart() -> None:
    two = Message("assistant", tool_calls=(ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}")))
    end = Message("assistant", "ok")
    one = digest_after(Conversation((TASK, two, result("x", "c1"), result("y", "c2"))), end)
    other = digest_after(Conversation((TASK, two, result("x", "c2"), result("y", "c1"))), end)
    assert one != other


def test_openings_tell_a_rewrite_from_a_side_conversation() -> None:
    assert opening(FIRST) == opening(Conversation((SYSTEM, TASK, REPLY, result("a")), (Tool("bash"),)))
    assert opening(FIRST) == opening(Conversation((SYSTEM, TASK, Message("user", "your reply had no tool call"))))
    assert opening(FIRST) != opening(Conversation((TASK,)))
    assert drift(first=True, same_opening=False) == "first"
    assert drift(first=False, same_opening=True) == "harness_rewrote"
    assert drift(first=False, same_opening=False) == "subagent"
