"""Anthropic Messages: writing a reply, streamed or whole.

Theory of operation: deltas come in, content blocks go out, one open at a time:

    message_start ping (content_block_start content_block_delta* content_block_stop)* message_delta message_stop

The kind of a delta is the kind of the block it belongs to. A delta of another kind, or of the next tool call,
closes the open block and opens its own at the next index; so text and calls stay in the order sampled, no block
is empty, and none holds two kinds. A thinking block ends with a signature, as harnesses send it back only then.
What may come in which state is the table `_LEGAL`; anything else is a bug of ours and raises. A whole reply is
the same blocks, put together.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import orjson

from addons.conversation import Call, Delta, Message, ReasoningDelta, Reply, TextDelta, ToolCallDelta, Usage
from addons.dialects.messages_errors import error_body
from addons.errors import CallError
from replay import codec

_STOP_REASON = {
    "stop": "end_turn",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "abort": "end_turn",
}

_PIECES = {
    "thinking": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "tool_use": ("input_json_delta", "partial_json"),
}
"""By the kind of a block: the kind of its deltas, and their field."""
_BLOCKS = set(_PIECES)
# state -> what may come next; a state is "idle", "between" blocks, the kind of the open block, or "ended"
_LEGAL = {
    "idle": {"start", "fail"},
    "between": {*_BLOCKS, "ping", "finish", "fail"},
    **{kind: {*_BLOCKS, "ping", "finish", "fail"} for kind in _BLOCKS},
    "ended": set[str](),
}


class Emitter:
    """One reply on the wire. Sans-IO: each method returns the bytes to send now."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, call: Call, reply_id: str, created: int) -> None:
        self._model = call.model
        self._id = reply_id
        self._state = "idle"
        self._index = -1  # of the block that was opened last
        self._tool = -1  # of the tool call that was begun last
        self._thought = hashlib.sha256()

    def start(self, prompt_tokens: int) -> bytes:
        """The model has been asked. How much of the prompt was cached is known only at the end."""
        self._step("start", "between")
        message = self._message([], None, None, usage_of(Usage(prompt_tokens, 0)))
        return _event("message_start", message=message) + _event("ping")

    def delta(self, delta: Delta, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        """More of the reply; an empty piece says nothing. The provider has no logprobs."""
        match delta:
            case ReasoningDelta(text):
                if not text:
                    return b""
                out = b"" if self._state == "thinking" else self._open("thinking", thinking="", signature="")
                self._step("thinking", "thinking")
                self._thought.update(text.encode())
                return out + self._piece(text)
            case TextDelta(text):
                if not text:
                    return b""
                out = b"" if self._state == "text" else self._open("text", text="")
                self._step("text", "text")
                return out + self._piece(text)
            case ToolCallDelta(index, arguments, id_, name):
                out = b""
                if name is not None:
                    self._begins(index)
                    out = self._open("tool_use", id=id_, name=name, input={})
                elif self._state != "tool_use" or index != self._tool:
                    raise AssertionError(f"messages emitter: more of tool call {index} in state {self._state}")
                self._step("tool_use", "tool_use")
                return out + (self._piece(arguments) if arguments else b"")

    def silence(self) -> bytes:
        """The provider's ping, and within a block an empty piece of it: the SDKs keep pings to themselves, and a
        harness that watches for events (Claude Code) would give the stream up.
        """
        self._step("ping", self._state)
        if self._state not in _BLOCKS:
            return _event("ping")
        return _event("ping") + self._piece("")

    def finish(self, reply: Reply, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        """The terminal events. Usage counts are totals, and overwrite those of the start."""
        out = self._close()
        self._step("finish", "ended")
        reason = _stop_reason(reply)
        delta = {"stop_reason": reason, "stop_sequence": _stop_sequence(reply), "stop_details": None}
        return out + _event("message_delta", delta=delta, usage=_totals(reply.usage)) + _event("message_stop")

    def fail(self, error: CallError) -> bytes:
        """An error after the stream has begun: it is the last event, the message stays unfinished."""
        self._step("fail", "ended")
        return _event("error", **error_body(error))

    def whole(self, reply: Reply, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        """The reply of a call that did not ask to stream."""
        blocks = _blocks(reply.said or _in_order(reply.message))
        reason = _stop_reason(reply)
        return orjson.dumps(self._message(blocks, reason, _stop_sequence(reply), usage_of(reply.usage)))

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, sequence: str | None, usage: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._model, "content": content,
            "stop_reason": reason, "stop_sequence": sequence, "stop_details": None, "usage": usage,
        }  # fmt: skip

    def _begins(self, index: int) -> None:
        if index != self._tool + 1:
            raise AssertionError(f"messages emitter: tool call {index} after {self._tool}")
        self._tool = index

    def _open(self, kind: str, **block: Any) -> bytes:
        """End the open block, if any, and begin one of `kind`."""
        out = self._close()
        self._step(kind, kind)
        self._index += 1
        return out + _event("content_block_start", index=self._index, content_block={"type": kind, **block})

    def _close(self) -> bytes:
        if self._state not in _BLOCKS:
            return b""
        out = b""
        if self._state == "thinking":
            out = self._more("signature_delta", signature=_signature(self._thought))
            self._thought = hashlib.sha256()
        self._state = "between"
        return out + _event("content_block_stop", index=self._index)

    def _piece(self, text: str) -> bytes:
        """More of the open block."""
        kind, field = _PIECES[self._state]
        return self._more(kind, **{field: text})

    def _more(self, kind: str, **delta: Any) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **delta})

    def _step(self, what: str, then: str) -> None:
        if what not in _LEGAL[self._state]:
            raise AssertionError(f"messages emitter: {what} in state {self._state}")
        self._state = then


def usage_of(usage: Usage) -> dict[str, Any]:
    """A `usage` object. `input_tokens` are those that no cache held: the prompt is the sum of the three."""
    return {
        **_totals(usage),
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "service_tier": "standard",
    }


def _totals(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def content_of(reply: Reply) -> list[dict[str, Any]]:
    """The content blocks of a reply, as the harness would send them back."""
    blocks: list[dict[str, Any]] = codec.loads(orjson.dumps(_blocks(reply.said or _in_order(reply.message))))
    return blocks


def _blocks(deltas: Iterable[Delta]) -> list[dict[str, Any]]:
    """The content blocks that the deltas add up to."""
    blocks: list[dict[str, Any]] = []
    spoken = (delta for delta in deltas if isinstance(delta, ToolCallDelta) or delta.text)
    for _, run in groupby(spoken, key=_block_of):
        pieces = list(run)
        match pieces[0]:
            case ToolCallDelta(id=id_, name=name):
                arguments = "".join(piece.arguments for piece in pieces if isinstance(piece, ToolCallDelta))
                # As the model wrote them, so that no number or key changes on the way.
                given = orjson.Fragment(arguments or "{}")
                blocks.append({"type": "tool_use", "id": id_, "name": name, "input": given})
            case ReasoningDelta() | TextDelta():
                text = "".join(piece.text for piece in pieces if not isinstance(piece, ToolCallDelta))
                if isinstance(pieces[0], TextDelta):
                    blocks.append({"type": "text", "text": text})
                else:
                    signature = _signature(hashlib.sha256(text.encode()))
                    blocks.append({"type": "thinking", "thinking": text, "signature": signature})
    return blocks


def _block_of(delta: Delta) -> tuple[str, int]:
    return (type(delta).__name__, delta.index if isinstance(delta, ToolCallDelta) else 0)


def _in_order(message: Message) -> Iterable[Delta]:
    yield ReasoningDelta(message.reasoning)
    yield TextDelta(message.content)
    for index, call in enumerate(message.tool_calls):
        yield ToolCallDelta(index, call.arguments, call.id, call.name)


def _signature(thought: hashlib._Hash) -> str:
    """A signature of ours: it says nothing, and any is taken back."""
    return base64.b64encode(thought.digest()).decode()


def _stop_reason(reply: Reply) -> str:
    return "model_context_window_exceeded" if reply.window_full else _STOP_REASON[reply.finish]


def _stop_sequence(reply: Reply) -> str | None:
    return reply.stop_sequence if reply.finish == "stop_sequence" else None


def _event(kind: str, **data: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps({"type": kind, **data}) + b"\n\n"
