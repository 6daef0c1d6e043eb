"""What a later call needs of a finished turn: its tokens and its reply, found by the digest it left behind.

The store is the truth; this is a bounded cache in front of it, so that a running session costs no reads and
a restarted proxy, or one of several over one store, still continues every conversation.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from itertools import takewhile
from typing import cast

from addons.conversation import Conversation, Message
from addons.drift import Sent
from addons.images import Placed
from addons.lineage import Prefix, Trail, instructs, trail
from addons.neutral import message_from, tool_from
from replay.ancestry import Ancestry
from replay.reader import Reader
from replay.records import Purpose
from replay.schema import Turn

TWINS = 16
"""Turns kept of those that left the same conversation behind (parallel runs of one task, say)."""


@dataclass(frozen=True, slots=True)
class Context:
    """A turn as its continuation sees it. `prompt` and `sampled` are int32 token ids.

    `head` is the digest of its instructions and tools, `thread` the harness's own name of the conversation, `sent`
    what its call sent exactly.
    """

    turn_id: int
    session_id: int
    prompt: array[int]
    sampled: array[int]
    reply: Message
    purpose: Purpose
    head: str
    thread: str | None
    sent: Sent
    placed: tuple[Placed, ...] = ()
    """The images in its prompt."""

    @property
    def tokens(self) -> int:
        """Ids held."""
        return len(self.prompt) + len(self.sampled)


class Contexts:
    """An LRU of contexts, bounded by the ids it holds (4 bytes each)."""

    def __init__(self, reader: Reader, max_ids: int = 16_000_000) -> None:
        self._reader = reader
        self._ancestry = Ancestry(reader.store)
        self._max_ids = max_ids
        self._ids = 0
        self._by_digest: OrderedDict[str, list[Context]] = OrderedDict()

    def remember(self, digest: str, context: Context, before: str | None = None) -> None:
        """Keep what a turn left behind. What it continued, under the digest `before`, is the first to be forgotten:
        of a conversation that goes on, nobody but a fork asks for it again."""
        twins = self._by_digest.setdefault(digest, [])
        self._by_digest.move_to_end(digest)
        if all(twin.turn_id != context.turn_id for twin in twins):
            twins.append(context)
            self._ids += context.tokens
            if len(twins) > TWINS:
                self._ids -= twins.pop(0).tokens
        if before is not None and before in self._by_digest:
            self._by_digest.move_to_end(before, last=False)
        while self._ids > self._max_ids and len(self._by_digest) > 1:
            _, gone = self._by_digest.popitem(last=False)
            self._ids -= sum(context.tokens for context in gone)

    def clear(self) -> None:
        """Forget everything; the store still knows it."""
        self._by_digest.clear()
        self._ids = 0

    async def find(self, session_id: int | None, conversation: Trail, thread: str | None = None) -> Context | None:
        """The turn that a call continues, in one session or in any.

        Of several that left the same behind it is the one of the same thread, else the one whose calls have these very
        ids, else the newest.
        """
        prefix = conversation.continues
        if prefix is None:
            return None
        head = conversation.head
        twins = [one for one in self._remembered(prefix, session_id) if one.head == head]
        if not twins:
            # In a thread: a long history is read whole, which would stall every other stream.
            stored = await asyncio.to_thread(self._stored, prefix, session_id, thread, head)
            for one in stored:
                self.remember(prefix.digest, one)
            return stored[-1] if stored and stored[-1].head == head else None
        return max(twins, key=lambda one: (one.thread == thread, _calls(one) == prefix.call_ids, one.turn_id))

    async def nearest(self, session_id: int | None, conversation: Trail) -> tuple[Context, Prefix] | None:
        """The turn that a call which continues none has most in common with: whatever its head, and wherever in the
        conversation it is."""
        for prefix in conversation.prefixes:
            if remembered := self._remembered(prefix, session_id):
                return max(remembered, key=lambda one: _likeness(one, conversation, prefix)), prefix
        return (
            await asyncio.to_thread(self._nearest_stored, session_id, conversation) if conversation.prefixes else None
        )

    async def session_of(self, conversation: Trail) -> int | None:
        """The session of a call that does not tell: the one in which some turn left a part of its conversation behind,
        under the same instructions and tools, or with calls of these very ids."""
        found = await self.nearest(None, conversation)
        if found is None:
            return None
        context, prefix = found
        same = context.head == conversation.head or (prefix.call_ids and _calls(context) == prefix.call_ids)
        return context.session_id if same else None

    def head_of(self, turn: Turn) -> str:
        """The digest of a stored turn's instructions and tools."""
        return self._head(turn)[1]

    def _remembered(self, prefix: Prefix, session_id: int | None) -> list[Context]:
        """Oldest first."""
        twins = [c for c in self._by_digest.get(prefix.digest, ()) if session_id in (None, c.session_id)]
        if twins:
            self._by_digest.move_to_end(prefix.digest)
        return twins

    def _nearest_stored(self, session_id: int | None, conversation: Trail) -> tuple[Context, Prefix] | None:
        stored = self._ancestry.after([prefix.digest for prefix in conversation.prefixes], session_id)
        for prefix in conversation.prefixes:
            twins = [self._load(turn) for turn in stored if turn.after_digest == prefix.digest]
            if twins:
                return max(twins, key=lambda one: _likeness(one, conversation, prefix)), prefix
        return None

    def _stored(self, prefix: Prefix, session_id: int | None, thread: str | None, head: str) -> list[Context]:
        """Newest first, but those of the thread before all; up to the first that has this head."""
        contexts: list[Context] = []
        turns = self._ancestry.after([prefix.digest], session_id)
        for turn in sorted(turns, key=lambda turn: turn.thread != thread):
            contexts.append(self._load(turn))
            if contexts[-1].head == head:
                break
        return contexts

    def _load(self, turn: Turn) -> Context:
        prompt, (sampled, _) = self._reader.prompt_ids(turn), self._reader.sampled(turn)
        reply = message_from(self._reader.reply(turn) or {"role": "assistant"})
        sent, head = self._head(turn)
        return Context(
            turn.id, turn.session_id, array("i", prompt), array("i", sampled), reply, cast(Purpose, turn.purpose),
            head, turn.thread, sent, tuple(Placed(**image) for image in self._reader.images(turn)),
        )  # fmt: skip

    def _head(self, turn: Turn) -> tuple[Sent, str]:
        """What the turn's call sent, as far as it is stored, and the digest of its instructions and tools."""
        stored = [None if message is None else message_from(message) for message in self._ancestry.past(turn)]
        told = [message for message in takewhile(lambda m: m is not None and instructs(m), stored) if message]
        tools = tuple(tool_from(tool) for tool in self._reader.tools(turn))
        texts = [None if m is None or m.role == "assistant" else m.content for m in stored[len(told) :]]
        sent = Sent(tuple(message.content for message in told), tools, tuple(texts))
        return sent, trail(Conversation(tuple(told), tools)).head


def _likeness(context: Context, conversation: Trail, prefix: Prefix) -> tuple[bool, bool, int]:
    return context.head == conversation.head, _calls(context) == prefix.call_ids, context.turn_id


def _calls(context: Context) -> tuple[str, ...]:
    return tuple(call.id for call in context.reply.tool_calls)
