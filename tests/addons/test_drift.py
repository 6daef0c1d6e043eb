"""What a harness changed, in words."""

from __future__ import annotations

from addons.conversation import Conversation, Message, Tool, ToolCall
from addons.drift import difference, noted, other_head, rewritten, sent
from addons.lineage import Trail, trail

SYSTEM, TASK = Message("system", "Be brief."), Message("user", "task")
BASH = Tool("bash", "Run it.", {"type": "object", "properties": {"command": {"type": "string"}}})
REPLY = Message("assistant", "ok")


def of(*messages: Message, tools: tuple[Tool, ...] = (BASH,)) -> Trail:
    return trail(Conversation(messages, tools))


def test_nothing_changed() -> None:
    assert noted(sent(of(SYSTEM, TASK)), of(SYSTEM, TASK, REPLY, TASK), 3) is None


def test_the_first_of_each_kind_is_named() -> None:
    reminded = Message("user", "<env>a</env>task")
    now = of(Message("system", "Be  brief."), reminded, REPLY, TASK, tools=(Tool("bash", "Run.", BASH.parameters),))
    assert noted(sent(of(SYSTEM, TASK)), now, 3) == (
        "system: was 'Be brief.', is 'Be  brief.'; tools.bash.description: was 'Run it.', is 'Run.'; "
        "messages[1]: was 'task', is '<env>a</env>task'"
    )


def test_what_came_and_what_went() -> None:
    reminder = Message("user", "<env>a</env>")
    came = noted(sent(of(SYSTEM, TASK)), of(SYSTEM, TASK, reminder, REPLY, TASK), 4)
    assert came == "messages[2]: was absent, is '<env>a</env>'"
    went = noted(sent(of(SYSTEM, TASK, reminder)), of(SYSTEM, TASK, REPLY, TASK), 3)
    assert went == "messages[2]: was '<env>a</env>', is absent"


def test_long_texts_are_shown_from_shortly_before_the_difference() -> None:
    assert difference("f", "a" * 500 + "b" + "c" * 500, "a" * 500) == (
        f"f: was …'{'a' * 20}b{'c' * 59}'…, is …'{'a' * 20}'"
    )


def test_what_was_sent_is_held_once() -> None:
    first = sent(of(Message("system", "".join(["s", "y"])), Message("user", "".join(["t", "a"])), REPLY))
    again = sent(of(Message("system", "".join(["s", "y"])), Message("user", "".join(["t", "a"])), REPLY, TASK), first)
    assert again.instructions is first.instructions
    assert again.tools is first.tools
    assert again.messages[0] is first.messages[0]
    assert again.messages == ("ta", None, "task")


def test_another_head() -> None:
    before = sent(of(SYSTEM, TASK))
    assert other_head(before, of(SYSTEM, TASK, tools=())) == ("harness_rewrote", "tools: removed bash")
    found = other_head(before, of(Message("system", "Be brief.\nBe rude."), TASK))
    assert found == ("harness_rewrote", "system: was 'Be brief.', is 'Be brief.\\nBe rude.'")


def test_a_difference_that_counts_is_shown_and_not_a_date_before_it() -> None:
    before = sent(of(Message("system", "Now: 10:00\nBe brief."), TASK))
    found = other_head(before, of(Message("system", "Now: 10:01\nBe rude."), TASK))
    assert found[1] == "system: was 'Be brief.', is 'Be rude.'"


def test_header_lines() -> None:
    before = sent(of(Message("system", "Mode: plan\n\nBe brief."), TASK))
    assert other_head(before, of(Message("system", "Mode: act\n\nBe brief."), TASK))[0] == "volatile_header"
    assert other_head(before, of(Message("system", "Mode: act\n\nBe rude."), TASK))[0] == "harness_rewrote"


def test_rewritten_histories() -> None:
    called = Message("assistant", "I look.", tool_calls=(ToolCall("c", "ls", '{"a": 1}'),))
    result = Message("tool", "a.txt", tool_call_id="c")
    before = [TASK, called, result]
    assert rewritten(before, [TASK, called, result, REPLY], 1) is None
    assert rewritten(before, [TASK, called, Message("tool", "[cleared]", tool_call_id="c")], 1) == (
        "harness_rewrote", "messages[3] (tool): was 'a.txt', is '[cleared]'",
    )  # fmt: skip
    assert rewritten(before, [TASK, called], 1) == ("harness_rewrote", "messages[3] (tool): was 'a.txt', is absent")
    assert rewritten(before, [TASK, Message("assistant", "I l"), result], 1) == (
        "truncated", "messages[2] (assistant): was 'I look. [ls {\"a\": 1}]', is 'I l'",
    )  # fmt: skip
    edited = Message("assistant", "I look.", tool_calls=(ToolCall("c", "ls", '{"a": 2}'),))
    assert rewritten(before, [TASK, edited, result], 1) == (
        "harness_rewrote", "messages[2] (assistant): was 'I look. [ls {\"a\": 1}]', is 'I look. [ls {\"a\": 2}]'",
    )  # fmt: skip
