"""What the gateway asks of a dialect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from addons.conversation import Call, Delta, Reply
from addons.dialects import chat, gemini, messages, responses
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
class Dialect:
    """A dialect that can be served. `items` names the request's list of messages."""

    name: str
    items: str
    reply_id: str
    call_id: str
    read: Callable[[Any], Call]
    emitter: Callable[[Call, str, int], Emitter]


SERVED = {
    chat.NAME: Dialect(chat.NAME, chat.ITEMS, chat.REPLY_ID, chat.CALL_ID, chat.read, chat.Emitter),
}
ERROR_BODY: dict[str, Callable[[CallError], dict[str, Any]]] = {
    chat.NAME: chat.error_body,
    responses.NAME: responses.error_body,
    messages.NAME: messages.error_body,
    gemini.NAME: gemini.error_body,
}
