"""A call's conversation as digests: what its turn leaves behind, and what it may continue.

A turn is known by the digest of the conversation it leaves behind: its messages and the reply. A later call continues
it when the part of its own conversation up to the last assistant message has the same digest, and when the head
(instructions and tools) means the same. Digests are over meanings, not bytes (:mod:`addons.meaning` has the rule), so
a harness that only re-serialises its history, or re-renders its system prompt with another date, still continues: the
parent's prompt ids stay as they are, and so does what was sampled.

Only the last assistant message can be continued: what comes after it is context to be rendered, while another
assistant message that was not sampled here would have to be made up. The shorter prefixes are for telling what
happened to a conversation that forked.

Digests are chained, so all prefixes of a call cost one pass over its messages, and a look-up is one row of an index
however long the session is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from addons import meaning
from addons.conversation import Conversation, Message


@dataclass(frozen=True, slots=True)
class Prefix:
    """A part of a conversation, from its beginning, that ends with an assistant message; `messages` counts its own.

    `call_ids` are the ids of that message's tool calls. They are no part of its meaning, since harnesses rewrite
    them, but of two turns that mean the same they tell which one is continued.
    """

    digest: str
    messages: int
    call_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trail:
    """A conversation, digested."""

    conversation: Conversation
    instructions: int
    """Messages at the beginning that instruct."""
    head: str
    """The digest of its instructions and tools."""
    prefixes: tuple[Prefix, ...]
    """Longest first."""
    _end: Any = field(repr=False)
    """The running hash after all messages but a last assistant one, which a reply goes on."""
    _open: tuple[Message, ...] = field(repr=False)
    """That last assistant message, in as many pieces as it came in."""

    def after(self, reply: Message) -> str:
        """The digest that the turn leaves behind."""
        running = self._end.copy()
        running.update(_assistant([*self._open, reply]))
        return str(running.hexdigest())

    @property
    def continues(self) -> Prefix | None:
        """What the call can continue: all up to its last assistant message, when only context comes after that."""
        longest = self.prefixes[0] if self.prefixes else None
        if longest is None:
            return None
        prefilled = self.conversation.continue_final_message
        new = self.conversation.messages[longest.messages : -1 if prefilled else None]
        return None if any(message.role == "assistant" for message in new) else longest

    def prefilled(self) -> Trail:
        """The same, of a call whose last message is no stored turn's reply but the beginning of the one to come."""
        whole = len(self.conversation.messages)
        return replace(self, prefixes=tuple(prefix for prefix in self.prefixes if prefix.messages < whole))

    @cached_property
    def opening(self) -> str:
        """The digest of how it began: the instructions and the first thing a user said.

        What a harness puts behind that and later drops (a reminder, a format error in place of the reply it was
        about) must not make the run look like another conversation.
        """
        messages = self.conversation.messages
        said = (meaning.said(message) for message in messages[self.instructions :] if message.role == "user")
        told = "".join(meaning.instructed(message.content) for message in messages[: self.instructions])
        return hashlib.sha256(meaning.dumps([told, next(filter(None, said), "")])).hexdigest()


def trail(conversation: Conversation) -> Trail:
    """Digest a conversation."""
    messages = conversation.messages
    instructions = next((i for i, m in enumerate(messages) if not instructs(m)), len(messages))
    # Where the final message is to be continued, it may be a stored turn's reply that a limit cut off.
    limit = len(messages) if conversation.continue_final_message else len(messages) - 1
    running, answers = hashlib.sha256(), _Answers()
    prefixes: list[Prefix] = []
    end = running.copy()
    last: tuple[Message, ...] = ()
    for role, group in groupby(_telling(messages, instructions), key=lambda told: _role(told[1])):
        run = list(group)
        said = tuple(message for _, message in run)
        last = said if role == "assistant" else ()
        if role != "assistant":
            running.update(_context(role, said, answers))
            end = running.copy()
            continue
        end = running.copy()
        running.update(_assistant(said))
        calls = tuple(call.id for message in said for call in message.tool_calls)
        answers.called(calls)
        if (count := run[-1][0] + 1) <= limit:
            prefixes.append(Prefix(running.hexdigest(), count, calls))
    prefixes.reverse()
    head = hashlib.sha256(meaning.head(messages[:instructions], conversation.tools)).hexdigest()
    return Trail(conversation, instructions, head, tuple(prefixes), end, last)


def meant(messages: Sequence[Message]) -> list[bytes]:
    """Each message as bytes that are equal where two mean the same; of those that mean nothing, none."""
    return [
        _assistant([message]) if message.role == "assistant" else _context(_role(message), [message], _Answers())
        for _, message in _telling(messages, 0)
    ]


class _Answers:
    """Numbers calls in order of appearance, and finds the one that a result answers: by its id, else by its order."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._count = 0
        self._waiting: list[int] = []

    def called(self, ids: Sequence[str]) -> None:
        self._waiting = list(range(self._count, self._count + len(ids)))
        self._numbers |= dict(zip(ids, self._waiting, strict=True))
        self._count += len(ids)

    def answered(self, call_id: str | None) -> int:
        number = self._numbers.get(call_id or "", self._waiting[0] if self._waiting else -1)
        if number in self._waiting:
            self._waiting.remove(number)
        return number


def _telling(messages: Sequence[Message], start: int) -> list[tuple[int, Message]]:
    """The messages from `start` on that mean something, with their places."""
    return [
        (place, message)
        for place, message in enumerate(messages)
        if place >= start and (message.role in ("assistant", "tool") or meaning.said(message))
    ]


def instructs(message: Message) -> bool:
    """Whether it is a system message, by whatever name."""
    return message.role in ("system", "developer")


def _role(message: Message) -> str:
    return "system" if instructs(message) else message.role


def _context(role: str, messages: Sequence[Message], answers: _Answers) -> bytes:
    """A run of messages of one role. Neighbours are one, however they were cut; but results each answer a call."""
    if role == "tool":
        return b"".join(
            meaning.dumps([role, meaning.said(message), answers.answered(message.tool_call_id), *_media([message])])
            + b"\n"
            for message in messages
        )
    said = meaning.instructed if role == "system" else meaning.squeezed
    words = "".join(said(meaning.without_blocks(m.content)) for m in messages)
    return meaning.dumps([role, words, *_media(messages)]) + b"\n"


def _media(messages: Sequence[Message]) -> list[str]:
    """What tells images apart whose words are the same."""
    return [one.sha256 for message in messages for one in message.media if one.sha256 is not None]


def _assistant(messages: Sequence[Message]) -> bytes:
    calls = [[call.name, meaning.arguments(call.arguments)] for message in messages for call in message.tool_calls]
    return meaning.dumps(["assistant", "".join(meaning.said(message) for message in messages), calls]) + b"\n"
