"""What a later call needs of a finished turn: its tokens and its reply, found by the digest it left behind.

The store is the truth; this is a bounded cache in front of it, so that a running session costs no reads and
a restarted proxy, or one of several over one store, still continues every conversation.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from addons.conversation import Message, Tool, ToolCall
from addons.lineage import Prefix
from replay.reader import Reader
from replay.records import Purpose
from replay.schema import Turn


@dataclass(frozen=True, slots=True)
class Context:
    """A turn as its continuation sees it. `prompt` and `sampled` are int32 token ids."""

    turn_id: int
    session_id: int
    prompt: array[int]
    sampled: array[int]
    reply: Message
    purpose: Purpose
    opening: str

    @property
    def tokens(self) -> int:
        """Ids held."""
        return len(self.prompt) + len(self.sampled)


TWINS = 16
"""Turns kept of those that left the same conversation behind (parallel runs of one task, say)."""


class Contexts:
    """An LRU of contexts, bounded by the ids it holds (4 bytes each)."""

    def __init__(self, reader: Reader, max_ids: int = 16_000_000) -> None:
        self._reader = reader
        self._max_ids = max_ids
        self._ids = 0
        self._by_digest: OrderedDict[str, list[Context]] = OrderedDict()

    def remember(self, digest: str, context: Context) -> None:
        """Keep what a turn left behind."""
        twins = self._by_digest.setdefault(digest, [])
        self._by_digest.move_to_end(digest)
        if all(twin.turn_id != context.turn_id for twin in twins):
            twins.append(context)
            self._ids += context.tokens
            if len(twins) > TWINS:
                self._ids -= twins.pop(0).tokens
        while self._ids > self._max_ids and len(self._by_digest) > 1:
            _, gone = self._by_digest.popitem(last=False)
            self._ids -= sum(context.tokens for context in gone)

    def clear(self) -> None:
        """Forget everything; the store still knows it."""
        self._by_digest.clear()
        self._ids = 0

    def find(self, session_id: int, candidates: Sequence[Prefix]) -> tuple[Context, Prefix] | None:
        """The turn of a session that a call continues: the longest of its prefixes that is known."""
        for prefix in candidates:
            if (context := self._among(prefix, session_id)) is not None:
                return context, prefix
        if not candidates:
            return None
        stored = self._reader.turns_by_digest([p.digest for p in candidates], session_id=session_id)
        for prefix in candidates:
            if (turn := stored.get(prefix.digest)) is not None:
                context = self._load(turn)
                self.remember(prefix.digest, context)
                return context, prefix
        return None

    def session_of(self, candidates: Iterable[Prefix]) -> int | None:
        """The session in which some turn left one of these behind: tells a keyless caller's session."""
        wanted = list(candidates)
        for prefix in wanted:
            if (context := self._among(prefix, None)) is not None:
                return context.session_id
        stored = self._reader.turns_by_digest([p.digest for p in wanted], session_id=None) if wanted else {}
        return next((stored[p.digest].session_id for p in wanted if p.digest in stored), None)

    def _among(self, prefix: Prefix, session_id: int | None) -> Context | None:
        """Of the turns that left this behind the one whose calls have these very ids, else the newest."""
        twins = [c for c in self._by_digest.get(prefix.digest, ()) if session_id in (None, c.session_id)]
        if not twins:
            return None
        self._by_digest.move_to_end(prefix.digest)
        exact = [c for c in twins if tuple(call.id for call in c.reply.tool_calls) == prefix.call_ids]
        return (exact or twins)[-1]

    def _load(self, turn: Turn) -> Context:
        prompt, (sampled, _) = self._reader.prompt_ids(turn), self._reader.sampled(turn)
        reply = message_from(self._reader.reply(turn) or {"role": "assistant"})
        return Context(
            turn.id, turn.session_id, array("i", prompt), array("i", sampled), reply,
            cast(Purpose, turn.purpose), turn.opening or "",
        )  # fmt: skip


def message_from(stored: dict[str, Any]) -> Message:
    """A message as the store keeps it (see :func:`message_json`)."""
    calls = tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in stored.get("tool_calls", ()))
    return Message(
        stored["role"], stored.get("content", ""), stored.get("reasoning", ""), calls,
        stored.get("tool_call_id"), stored.get("name"),
    )  # fmt: skip


def message_json(message: Message) -> dict[str, Any]:
    """A message for the store: only what it has."""
    out: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        out["reasoning"] = message.reasoning
    if message.tool_calls:
        out["tool_calls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        out["name"] = message.name
    return out


def tool_json(tool: Tool) -> dict[str, Any]:
    """A tool for the store: only what it has."""
    out: dict[str, Any] = {"name": tool.name}
    if tool.description:
        out["description"] = tool.description
    if tool.parameters is not None:
        out["parameters"] = tool.parameters
    return out
