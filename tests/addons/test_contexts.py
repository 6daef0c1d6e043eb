"""The cache in front of the record: what it finds, and what it forgets."""

from __future__ import annotations

import asyncio
from array import array

import pytest

from addons.contexts import TWINS, Context, Contexts
from addons.conversation import Conversation, Message, ToolCall
from addons.drift import Sent
from addons.lineage import Trail, trail
from replay.reader import Reader
from replay.store import Store

TASK = Message("user", "task")
NOTHING = Sent((), (), ())


@pytest.fixture
def contexts(tmp_path: object) -> Contexts:
    return Contexts(Reader(Store.open(f"sqlite:///{tmp_path}/record.db")), max_ids=1000)


def reply(call_id: str = "c") -> Message:
    return Message("assistant", tool_calls=(ToolCall(call_id, "ls", "{}"),))


def asks(call_id: str = "c", *told: Message) -> Trail:
    """A call that goes on after the reply."""
    return trail(Conversation((*told, TASK, reply(call_id), Message("tool", "a", tool_call_id=call_id))))


def remember(contexts: Contexts, turn_id: int, call_id: str = "c", *, session_id: int = 1, **more: object) -> str:
    began = trail(Conversation((TASK,)))
    values = {"thread": None, "head": began.head, "prompt": array("i", range(10)), **more}
    context = Context(
        turn_id=turn_id, session_id=session_id, sampled=array("i", [1]), reply=reply(call_id), purpose="main",
        sent=NOTHING, **values,  # type: ignore[arg-type]
    )  # fmt: skip
    digest = began.after(reply(call_id))
    contexts.remember(digest, context)
    return digest


def found(contexts: Contexts, conversation: Trail, session_id: int | None = 1, thread: str | None = None) -> int | None:
    context = asyncio.run(contexts.find(session_id, conversation, thread))
    return None if context is None else context.turn_id


def test_the_thread_goes_before_the_ids_and_the_ids_before_the_newest(contexts: Contexts) -> None:
    remember(contexts, 1, "c1", thread="t1")
    remember(contexts, 2, "c2", thread="t2")
    remember(contexts, 3, "c3")
    assert found(contexts, asks("c2"), thread="t1") == 1
    assert found(contexts, asks("c2")) == 3  # of no thread, as the call is
    assert found(contexts, asks("c2"), thread="another") == 2
    assert found(contexts, asks("rewritten"), thread="another") == 3


def test_other_sessions_turns_are_none_of_ours(contexts: Contexts) -> None:
    remember(contexts, 1, session_id=7)
    assert found(contexts, asks()) is None
    assert found(contexts, asks(), None) == 1
    assert asyncio.run(contexts.session_of(asks())) == 7


def test_another_head_is_another_prompt_and_still_the_nearest(contexts: Contexts) -> None:
    remember(contexts, 1)
    told = asks("c", Message("system", "Be brief."))
    assert found(contexts, told) is None
    nearest = asyncio.run(contexts.nearest(1, told))
    assert nearest is not None
    assert (nearest[0].turn_id, nearest[1]) == (1, told.continues)


def test_a_stranger_with_the_same_words_is_told_by_its_head_or_its_ids(contexts: Contexts) -> None:
    remember(contexts, 1, "c1", session_id=7)
    assert asyncio.run(contexts.session_of(asks("c1", Message("system", "s")))) == 7
    assert asyncio.run(contexts.session_of(asks("other", Message("system", "s")))) is None
    assert asyncio.run(contexts.session_of(asks("other"))) == 7


def test_it_is_bounded(contexts: Contexts) -> None:
    for number in range(TWINS + 5):
        remember(contexts, number, prompt=array("i", range(20)))
    assert asyncio.run(contexts.nearest(1, asks())) is not None
    assert contexts._ids == TWINS * 21
    large = trail(Conversation((Message("user", "large"),)))
    context = Context(99, 1, array("i", range(990)), array("i"), reply(), "main", large.head, None, NOTHING)
    contexts.remember(large.after(reply()), context)
    assert found(contexts, asks()) is None
    assert contexts._ids == 990


def test_what_was_continued_is_the_first_to_be_forgotten(contexts: Contexts) -> None:
    def context(number: int, session_id: int) -> Context:
        ids = array("i", range(300))
        return Context(number, session_id, ids, array("i"), reply(), "main", "head", None, NOTHING)

    contexts.remember("other session's", context(1, 1))
    contexts.remember("first", context(2, 2))
    contexts.remember("second", context(3, 2), "first")
    contexts.remember("third", context(4, 2), "second")
    assert list(contexts._by_digest) == ["first", "other session's", "third"]
