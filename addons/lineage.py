"""Where a call belongs: which stored turn it continues, or why it opens a new root.

A turn is known by the digest of the conversation it leaves behind (its messages and the reply). A later call
continues it when one of its own prefixes has the same digest. Digests compare by meaning, not by bytes: tool
arguments as parsed JSON, call ids by their order, null as empty, reasoning not at all (providers sign it,
harnesses drop it), so a harness that only re-serialises its history still continues.

Digests are chained, so every prefix of a call costs one pass over its messages, and a look-up is one row of an
index however long the session is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from addons.conversation import Conversation, Message, Tool, continued
from replay.records import DriftReason


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of a conversation that ends with a reply: `messages` counts its messages.

    `call_ids` are the ids of the reply's tool calls. They are no part of its meaning, since harnesses rewrite them, but
    of two turns that mean the same they tell which one is continued.
    """

    digest: str
    messages: int
    call_ids: tuple[str, ...] = ()


class Digest:
    """The running digest of a conversation, hex sha256 of its canonical messages."""

    def __init__(self, conversation_tools: Sequence[Tool]) -> None:
        self._hash = hashlib.sha256(_canonical_tools(conversation_tools))
        self._ordinals: dict[str, int] = {}

    def now(self) -> str:
        """The digest of everything so far."""
        return self._hash.hexdigest()

    def add(self, message: Message) -> str:
        """Append one message; returns the digest of everything so far."""
        self._hash.update(_canonical(message, self._ordinals))
        return self.now()


def prefixes(conversation: Conversation) -> list[Prefix]:
    """Every prefix that a stored turn could have left behind, longest first."""
    # A reply that is to be continued may be a stored turn's, which a limit cut off.
    last = len(conversation.messages) - (not conversation.continue_final_message)
    found = [
        Prefix(digest, count, tuple(call.id for call in conversation.messages[count - 1].tool_calls))
        for count, digest in _walk(conversation.messages, conversation.tools)
        if conversation.messages[count - 1].role == "assistant" and count <= last
    ]
    found.reverse()
    return found


def digest_after(conversation: Conversation, reply: Message) -> str:
    """The digest of a conversation and the reply to it."""
    messages = list(conversation.messages)
    if conversation.continue_final_message:
        reply = continued(messages.pop(), reply)
    running = Digest(conversation.tools)
    for message in messages:
        running.add(message)
    return running.add(reply)


def opening(conversation: Conversation) -> str:
    """The digest of how it began, to the first user message: one for all calls of one run on one task.

    What a harness puts behind that and later drops (a reminder, a format error in place of the reply it was about)
    must not make the run look like another conversation.
    """
    running = Digest(())
    digest = running.now()
    for message in conversation.messages:
        if message.role in ("assistant", "tool"):
            break
        digest = running.add(message)
        if message.role == "user":
            break
    return digest


def drift(*, first: bool, same_opening: bool) -> DriftReason:
    """Why a call that continues nothing opened a root."""
    if first:
        return "first"
    if same_opening:
        return "harness_rewrote"
    return "subagent"


def _walk(messages: Sequence[Message], tools: Sequence[Tool]) -> Iterator[tuple[int, str]]:
    running = Digest(tools)
    for count, message in enumerate(messages, 1):
        yield count, running.add(message)


def _canonical_tools(tools: Sequence[Tool]) -> bytes:
    return _bytes([[t.name, t.description, t.parameters or {}] for t in tools])


def _canonical(message: Message, ordinals: dict[str, int]) -> bytes:
    """Stable bytes for what a message means. `ordinals` numbers the call ids in order of appearance."""
    calls = []
    for call in message.tool_calls:
        ordinals[call.id] = len(ordinals)
        calls.append([call.name, _meaning(call.arguments)])
    answers = None if message.tool_call_id is None else ordinals.get(message.tool_call_id, -1)
    return _bytes([message.role, _said(message), calls, answers]) + b"\n"


def _bytes(value: object) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # past 64 bits, or nested deeper than orjson goes
        try:
            return json.dumps(value, sort_keys=True).encode()
        except RecursionError:
            return repr(value)[:1_000_000].encode("utf-8", "backslashreplace")


def _meaning(arguments: str) -> object:
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments


def _said(message: Message) -> str:
    """A reply's text without the white space around it, which providers and harnesses add and strip at will."""
    return message.content.strip() if message.role == "assistant" else message.content
