from __future__ import annotations

from dataclasses import replace

import pytest

from addons.conversation import Conversation, Message, Tool, ToolCall
from addons.lineage import Trail, trail

SYSTEM, TASK = Message("system", "s"), Message("user", "task")
BASH = Tool("bash", "Run it.", {"type": "object", "properties": {"command": {"type": "string"}}})
EXPLAINED = {"type": "object", "properties": {"command": {"title": "The command", "type": "string"}}}
READ = Tool("read", "Read it.", {"type": "object", "properties": {"path": {"type": "string"}}})


def called(arguments: str, id_: str = "call_a") -> Message:
    return Message("assistant", tool_calls=(ToolCall(id_, "bash", arguments),))


def result(text: str, id_: str = "call_a") -> Message:
    return Message("tool", text, tool_call_id=id_)


def of(*messages: Message, tools: tuple[Tool, ...] = ()) -> Trail:
    return trail(Conversation(messages, tools))


REPLY = called('{"command": "ls -la"}')
FIRST = (SYSTEM, TASK)


def continues(*messages: Message, reply: Message = REPLY, first: tuple[Message, ...] = FIRST) -> bool:
    """Whether a call continues the turn that `first` and `reply` made: by its messages, and by what instructs it."""
    before, now = of(*first), of(*messages)
    return now.continues is not None and now.continues.digest == before.after(reply) and now.head == before.head


def test_the_next_call_continues() -> None:
    assert continues(SYSTEM, TASK, REPLY, result("a.txt"))


@pytest.mark.parametrize(
    "echoed",
    [
        called('{"command":"ls -la"}'),
        called('{ "command" : "ls \\u002dla" }'),
        called('{"command": "ls -la", "timeout": null}'),
        called('{"command": "ls -la"}', "call_rewritten"),
        replace(REPLY, reasoning="signed, or dropped"),
        replace(REPLY, content="<think>\nmoved into the text\n</think>\n"),
        replace(REPLY, content="\n"),
    ],
    ids=[
        "re-spaced",
        "re-escaped",
        "null member",
        "id rewritten",
        "reasoning",
        "reasoning in the text",
        "blank content",
    ],
)
def test_a_reply_by_meaning(echoed: Message) -> None:
    assert continues(SYSTEM, TASK, echoed, result("a.txt", echoed.tool_calls[0].id))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"b": [1, 2], "a": 1}'),
        ('{"n": 1.0, "e": 1e3}', '{"n": 1, "e": 1000}'),
        ('{"n": -0.0}', '{"n": 0}'),
        ('{"n": 18446744073709551616}', '{"n": 18446744073709551616}'),
        ("{}", ""),
        ("", "null"),
        ('{"s": "\\u00fc\\ud83d\\ude00"}', '{"s": "ü😀"}'),
        ("not JSON", " not  JSON"),
    ],
)
def test_arguments_by_meaning(one: str, other: str) -> None:
    assert continues(*FIRST, called(other), result("x"), reply=called(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [('{"b": [1, 2]}', '{"b": [2, 1]}'), ('{"n": 1}', '{"n": 1.5}'), ('{"n": 1}', '{"n": "1"}'), ('{"s": ""}', "{}")],
)
def test_other_arguments_are_another_call(one: str, other: str) -> None:
    assert not continues(*FIRST, called(other), result("x"), reply=called(one))


@pytest.mark.parametrize(
    "messages",
    [
        (SYSTEM, TASK),
        (SYSTEM, Message("user", "another"), REPLY, result("a")),
        (Message("system", "other"), TASK, REPLY, result("a")),
        (SYSTEM, TASK, called('{"command": "rm -rf"}'), result("a")),
        (SYSTEM, TASK, replace(REPLY, content="text"), result("a")),
        (SYSTEM, TASK, REPLY),
        (SYSTEM, TASK, REPLY, result("a"), Message("assistant", "not sampled here")),
    ],
    ids=["no reply", "task", "system", "arguments", "text", "prefill", "prefill after a result"],
)
def test_what_differs_in_meaning_does_not_continue(messages: tuple[Message, ...]) -> None:
    assert not continues(*messages)


@pytest.mark.parametrize(
    "messages",
    [
        (Message("developer", "s"), TASK, REPLY, result("a")),
        (SYSTEM, Message("user", " ta sk\r\n"), REPLY, result("a")),
        (SYSTEM, Message("user", "ta"), Message("user", "sk"), REPLY, result("a")),
        (SYSTEM, Message("user", "<system-reminder>\nbe nice\n</system-reminder>task"), REPLY, result("a")),
        (SYSTEM, Message("user", "<system-reminder>r</system-reminder>"), TASK, REPLY, result("a")),
        (SYSTEM, TASK, Message("system", "<system-reminder>r</system-reminder>"), REPLY, result("a")),
        (SYSTEM, TASK, Message("assistant", ""), REPLY, result("a")),
    ],
    ids=["developer", "white space", "cut in two", "reminder", "only a reminder", "system reminder", "empty reply"],
)
def test_what_does_not_differ_in_meaning_continues(messages: tuple[Message, ...]) -> None:
    assert continues(*messages)


def test_a_reminder_may_go_again() -> None:
    reminded = (SYSTEM, Message("user", "task <env>cwd: /a</env>"), Message("user", "<env>cwd: /b</env>"))
    assert continues(SYSTEM, TASK, REPLY, result("a"), first=reminded)


def test_a_reply_in_two_messages_is_one() -> None:
    whole = replace(REPLY, content="I look.")
    assert continues(SYSTEM, TASK, Message("assistant", "I look."), REPLY, result("a"), reply=whole)


def test_other_tools_are_another_head_and_the_same_messages() -> None:
    one, other = of(*FIRST, REPLY, result("a"), tools=(BASH,)), of(*FIRST, REPLY, result("a"), tools=(BASH, READ))
    assert one.continues == other.continues
    assert one.head != other.head


@pytest.mark.parametrize(
    "tools",
    [
        (READ, BASH),
        (replace(BASH, description="Run it now."), READ),
        (READ, replace(BASH, parameters=EXPLAINED)),
    ],
    ids=["reordered", "described otherwise", "explained otherwise"],
)  # fmt: skip
def test_the_same_tools(tools: tuple[Tool, ...]) -> None:
    assert of(*FIRST, tools=(BASH, READ)).head == of(*FIRST, tools=tools).head


def test_a_property_may_be_named_like_a_word_of_the_schema() -> None:
    kinds = ("string", "integer")
    one, other = (Tool("t", "", {"properties": {"description": {"type": kind}}}) for kind in kinds)
    assert of(*FIRST, tools=(one,)).head != of(*FIRST, tools=(other,)).head


def test_the_longest_prefix_comes_first() -> None:
    second = called('{"command": "cat a"}', "call_b")
    found = of(SYSTEM, TASK, REPLY, result("a"), second, result("b", "call_b")).prefixes
    assert [(p.messages, p.call_ids) for p in found] == [(5, ("call_b",)), (3, ("call_a",))]


def test_a_cut_off_reply_may_be_continued_in_place() -> None:
    begun = Conversation((SYSTEM, TASK, Message("assistant", "One, tw")), continue_final_message=True)
    assert trail(begun).continues is not None
    whole = of(SYSTEM, TASK, Message("assistant", "One, two"), Message("user", "more"))
    assert whole.continues is not None
    assert trail(begun).after(Message("assistant", "o")) == whole.continues.digest


def test_results_answer_calls_by_id_or_else_by_order() -> None:
    two = Message("assistant", tool_calls=(ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}")))
    end = Message("assistant", "ok")
    straight = of(TASK, two, result("x", "c1"), result("y", "c2")).after(end)
    assert of(TASK, two, result("x", "c2"), result("y", "c1")).after(end) != straight
    assert of(TASK, two, result("x", "lost"), result("y", "gone")).after(end) == straight


def test_ids_that_are_all_the_same_do_not_confuse_later_calls() -> None:
    def talk(first: str, second: str) -> str:
        one, two = called("{}", first), called('{"a": 1}', second)
        return of(TASK, one, result("x", first), two, result("y", second)).after(Message("assistant", "ok"))

    assert talk("call_0", "call_0") == talk("call_1", "call_2")


def test_an_opening_is_the_same_for_a_whole_run() -> None:
    opening = of(*FIRST).opening
    assert of(SYSTEM, TASK, REPLY, result("a"), tools=(BASH,)).opening == opening
    assert of(SYSTEM, TASK, Message("user", "your reply had no tool call")).opening == opening
    assert of(SYSTEM, Message("user", "<system-reminder>r</system-reminder>"), TASK).opening == opening
    assert of(TASK).opening != opening


def test_legal_json_that_is_hard_to_write() -> None:
    deep = '{"a":' * 3000 + "1" + "}" * 3000
    assert continues(*FIRST, called(deep), result("x"), reply=called(deep))
    schema: dict[str, object] = {}
    for _ in range(3000):
        schema = {"anyOf": [schema]}
    assert of(*FIRST, tools=(Tool("t", "", schema),)).head != of(*FIRST).head
