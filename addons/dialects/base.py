"""What the gateway asks of a dialect, and the table of the four."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from addons.conversation import Call, Delta, Reply
from addons.dialects import chat, gemini, messages, responses
from addons.dialects.continuing import Continuing, LookUp
from addons.errors import CallError

Logprobs = list[dict[str, Any]] | None


class Emitter(Protocol):
    """One reply on the wire, sans-IO: bytes to send now."""

    content_type: str

    def start(self, prompt_tokens: int) -> bytes:
        """The model has been asked."""

    def delta(self, delta: Delta, logprobs: Logprobs = None) -> bytes:
        """More of the reply."""

    def silence(self) -> bytes:
        """What the provider sends while its model is silent, at this point of the stream."""

    def finish(self, reply: Reply, logprobs: Logprobs = None) -> bytes:
        """The terminal events."""

    def fail(self, error: CallError) -> bytes:
        """An error after the stream has begun."""

    def whole(self, reply: Reply, logprobs: Logprobs = None) -> bytes:
        """The reply of a call that did not ask to stream."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is known of a call beside its body: `model` and form where the URL names them (Gemini), and how it came."""

    model: str = ""
    stream: bool = False
    sse: bool = True
    socket: bool = False
    """It is a message of a WebSocket."""
    compact: bool = False
    """It came to the route that shortens a conversation."""
    provider: str = ""
    """The providers table's name: some speak a dialect with an accent."""


def _no_refusal(emitter: Any, error: CallError) -> bytes | None:
    return None


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect. `items` names the request's list of messages; the ids are the provider's prefixes."""

    name: str
    items: str
    reply_id: str
    call_id: str
    read: Callable[[Any, Target, LookUp], Call]
    """Reads a body, with what it continues of the caller's earlier calls."""
    emitter: Callable[[Call, str, int], Emitter]
    error_body: Callable[[CallError], dict[str, Any]]
    read_count: Callable[[Any, Target, LookUp], Call] | None = None
    """Reads the body of a token count; None where the provider has no such route."""
    count_reply: Callable[[int], dict[str, Any]] | None = None
    continuing: Continuing | None = None
    """How a call continues a reply by its id; None where every call brings its whole conversation."""
    refusal_in_stream: Callable[[Any, CallError], bytes | None] = _no_refusal
    """A whole stream for a call refused before it began, where the provider refuses there and not by HTTP status."""
    unsampled: Callable[[Any], bytes] | None = None
    """The stream for a call that asks for no sampling; None where no call can."""


DIALECTS = {
    chat.NAME: Dialect(
        chat.NAME, chat.ITEMS, chat.REPLY_ID, chat.CALL_ID,
        lambda body, at, stored: chat.read(body, at.provider, at.model), chat.Emitter, chat.error_body,
    ),
    responses.NAME: Dialect(
        responses.NAME, responses.ITEMS, responses.REPLY_ID, responses.CALL_ID,
        lambda body, at, stored: responses.read(body, stored, socket=at.socket, compact=at.compact),
        responses.Emitter, responses.error_body,
        lambda body, at, stored: responses.read_count(body, stored), responses.count_reply,
        responses.CONTINUING,
        lambda emitter, error: emitter.refuse(error),
        lambda emitter: emitter.unsampled(),
    ),
    messages.NAME: Dialect(
        messages.NAME, messages.ITEMS, messages.REPLY_ID, messages.CALL_ID,
        lambda body, at, stored: messages.read(body, at.model, stored), messages.Emitter, messages.error_body,
        lambda body, at, stored: messages.read_count(body, at.model, stored), messages.count_reply,
        messages.CONTINUING,
    ),
    gemini.NAME: Dialect(
        gemini.NAME, gemini.ITEMS, gemini.REPLY_ID, gemini.CALL_ID,
        lambda body, at, stored: gemini.read(body, at.model, at.stream, at.sse), gemini.Emitter, gemini.error_body,
        lambda body, at, stored: gemini.read_count(body, at.model), gemini.count_reply,
    ),
}  # fmt: skip
