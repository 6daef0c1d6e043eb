"""What a session's calls so far tell of the next."""

from __future__ import annotations

from addons.caller import Caller
from addons.conversation import Conversation, Message, Tool
from addons.lineage import Trail, trail
from addons.sessions import KEEP_ROOTS, LiveSession

CALLER = Caller("h", "s", None, "claude-cli", "2", 0)
BASH = Tool("bash")


def of(system: str, user: str = "task", *tools: Tool) -> Trail:
    return trail(Conversation((Message("system", system), Message("user", user)), tools))


def test_conversations_under_the_same_instructions_are_the_agents() -> None:
    session = LiveSession(1, "s")
    assert not session.known(of("a", "task", BASH)).begun
    session.opened(1, "main", of("a", "task", BASH), None, CALLER)
    assert session.known(of("a", "another", BASH)).same_head
    assert not session.known(of("b", "another", BASH)).same_head
    assert session.known(of("b")).agent == CALLER


def test_calls_without_tools_before_the_first_with_tools() -> None:
    session = LiveSession(1, "s")
    assert session.opened(1, "main", of("a title"), None, CALLER) == []
    assert session.opened(2, "main", of("chat"), None, CALLER) == []
    assert session.opened(3, "main", of("chat"), 2, CALLER) == []
    agent = of("an agent", "task", BASH)
    assert session.known(agent).begun  # 2 was continued: a conversation
    assert session.opened(4, "main", agent, None, CALLER) == [1]
    assert not session.known(of("a title")).same_head


def test_side_calls_alone_begin_nothing() -> None:
    session = LiveSession(1, "s")
    session.opened(1, "main", of("a title"), None, Caller("h", "s", None, "sdk", None, 0))
    agent = of("an agent", "task", BASH)
    assert not session.known(agent).begun
    assert session.known(agent).agent is None
    session.opened(2, "main", agent, None, CALLER)
    assert session.agent == CALLER


def test_what_it_keeps_is_bounded() -> None:
    session = LiveSession(1, "s")
    for number in range(3 * KEEP_ROOTS):
        session.opened(number, "main", of(f"{'x' * number}"), None, CALLER)
    assert len(session.heads) == len(session.toolless) == KEEP_ROOTS


def test_a_conversation_made_from_a_summary() -> None:
    session = LiveSession(1, "s")
    summary = "The files were listed in full.\nOk\nNothing was written so far.\nThe tests are still to be run."
    session.replied("compaction", Message("assistant", f"<summary>\n{summary}\n</summary>"))
    assert session.quoted(of("a", f"Earlier:\n\n> {summary.replace('Ok', 'Fine')}\nGo on."))
    assert session.quoted(of(f"You go on from this: {summary}"))
    assert not session.quoted(of("a", "The files were listed in part. Ok"))


def test_a_conversation_that_begins_with_a_reply() -> None:
    """opencode's does after a compaction; a long reply of the agent's own there is its history, no summary."""
    plan = "\n".join(f"{number}. Change the file number {number}." for number in range(20))
    later = trail(Conversation((Message("user", "task"), Message("assistant", plan), Message("user", "go on"))))
    asked, own = LiveSession(1, "s"), LiveSession(2, "t")
    asked.replied("compaction", Message("assistant", plan))
    own.replied("main", Message("assistant", plan))
    assert asked.quoted(later)
    assert not own.quoted(later)
    assert own.quoted(of("a", plan))


def test_a_long_reply_may_be_one_and_a_short_one_is_none() -> None:
    session = LiveSession(1, "s")
    session.replied("main", Message("assistant", "The files were listed in full."))
    assert not session.quoted(of("a", "The files were listed in full."))
    plan = "\n".join(f"{number}. Change the file number {number}." for number in range(20))
    session.replied("main", Message("assistant", plan))
    assert session.quoted(of("a", f"Do this:\n{plan}"))
