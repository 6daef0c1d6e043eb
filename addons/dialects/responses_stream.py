"""Writing a Responses reply, streamed or whole.

Theory of operation: deltas come in, named server-sent events go out, each with the next `sequence_number`. The
reply is a list of output items, one open at a time. A delta of another kind (or of another call) closes the item
that is open and opens the next, so that items come in the order sampled:

    response.created, response.in_progress,
    (output_item.added, [part added], delta..., done events, output_item.done)*,
    response.completed | response.incomplete | error, response.failed

A function call's arguments are streamed as they come. Of the other kinds of call it shows only at the end
whether they are what they should be, so these are written when they are complete.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from addons.conversation import (
    Call,
    Delta,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from addons.dialects.responses_compaction import compacted
from addons.dialects.responses_errors import stream_error
from addons.dialects.responses_open import OpenCall, OpenCompaction, OpenItem, OpenReasoning, OpenText, Place
from addons.dialects.responses_reply import Status, cut_short, output_items, response
from addons.errors import CallError
from replay import codec

# state -> what may come next
_LEGAL = {
    "idle": {"start"},
    "open": {"delta", "silence", "finish"},
    "finished": set[str](),
}


class Emitter:
    """One reply on the wire. Sans-IO: each method returns the bytes to send now."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, call: Call, reply_id: str, created: int) -> None:
        self._call = call
        self._id = reply_id
        self._created = created
        self._state = "idle"
        self._sequence = 0
        self._item: OpenItem | None = None
        self._output: list[dict[str, Any]] = []
        self._logprobs: list[dict[str, Any]] = []
        self._summary: list[str] = []

    def start(self, prompt_tokens: int) -> bytes:
        """The model has been asked."""
        self._step("start", "open")
        begun = {"response": self._response("in_progress")}
        return self._event("response.created", begun) + self._event("response.in_progress", begun)

    def delta(self, delta: Delta, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        """More of the reply. Logprobs wait for a text, which is the only place for them."""
        self._step("delta", "open")
        self._logprobs += logprobs or []
        item, out = self._item, b""
        match delta:
            case ReasoningDelta(text):
                if text and not isinstance(item, OpenReasoning):
                    out = self._next(OpenReasoning)
            case TextDelta(text) if self._call.compaction:
                self._summary.append(text)
                return b""
            case TextDelta(text):
                if text and not isinstance(item, OpenText):
                    out = self._next(partial(OpenText, logprobs=self._logprobs))
            case ToolCallDelta(number, text, id_, name):
                if not isinstance(item, OpenCall) or item.number != number:
                    if id_ is None or name is None:
                        raise AssertionError(f"responses emitter: call {number} begins without its id and name")
                    out = self._next(partial(OpenCall, tool_call=ToolCall(id_, name, ""), number=number))
        return out + (self._item.say(text) if self._item is not None and text else b"")

    def silence(self) -> bytes:
        """The provider's heartbeat. An event, not a comment: Codex's patience is renewed by events only."""
        self._step("silence", "open")
        return self._event("keepalive", {})

    def finish(self, reply: Reply, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        """The terminal events."""
        self._step("finish", "finished")
        self._logprobs += logprobs or []
        out = b""
        if self._call.compaction:  # in one item, however often the model stopped to think
            out = self._next(OpenCompaction)
            assert self._item is not None
            out += self._item.say("".join(self._summary))
        elif self._item is None and not self._output:
            # A reply that says nothing is still a message, or a harness would have no turn to send back.
            out = self._next(partial(OpenText, logprobs=self._logprobs))
        out += self._close(cut_short=cut_short(reply))
        status: Status = "incomplete" if cut_short(reply) else "completed"
        return out + self._event(f"response.{status}", {"response": self._response(status, usage=reply.usage)})

    def fail(self, error: CallError) -> bytes:
        """An error after the stream has begun."""
        self._step("finish", "finished")
        described = stream_error(error)
        failed = self._response("failed", error={"code": described["code"], "message": described["message"]})
        return self._event("error", {"error": described}) + self._event("response.failed", {"response": failed})

    def refuse(self, error: CallError) -> bytes | None:
        """A whole stream for a call refused before it began; None where the provider answers by HTTP status.

        The provider finds out that a prompt is too long when it has begun to stream. Codex knows it for what it is
        only there; an HTTP 400 it takes for a fault of the request.
        """
        if not self._call.stream or error.kind != "context_length":
            return None
        return self.start(0) + self.fail(error)

    def unsampled(self) -> bytes:
        """The reply to `generate: false`: a response with nothing in it, to be continued by its id."""
        self._step("start", "finished")
        begun, done = self._response("in_progress"), self._response("completed", usage=Usage(0, 0))
        return self._event("response.created", {"response": begun}) + self._event(
            "response.completed", {"response": done}
        )

    def whole(self, reply: Reply, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        """The reply of a call that did not ask to stream: what the stream would have added up to."""
        if reply.said:
            self.start(0)
            self._logprobs += logprobs or []
            for delta in reply.said:
                self.delta(delta)
            self.finish(reply)
            output = self._output
        else:
            output = output_items(self._call, self._id, reply, logprobs or ())
        status: Status = "incomplete" if cut_short(reply) else "completed"
        made = response(self._call, self._id, self._created, status, output, usage=reply.usage)
        kept = self._call.options.get("retained")
        return codec.dumps(made if kept is None else compacted(made, kept))

    def _next(self, make: Callable[[Place], OpenItem]) -> bytes:
        out = self._close()
        self._item = make(Place(self._event, self._call, self._id, len(self._output)))
        return out + self._item.open()

    def _close(self, *, cut_short: bool = False) -> bytes:
        if self._item is None:
            return b""
        out, item = self._item.close(cut_short=cut_short)
        self._output.append(item)
        self._item = None
        return out

    def _response(
        self, status: Status, *, usage: Usage | None = None, error: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return response(self._call, self._id, self._created, status, self._output, usage=usage, error=error)

    def _event(self, kind: str, fields: dict[str, Any]) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return (
            b"event: " + kind.encode() + b"\ndata: " + codec.dumps(event) + b"\n\n"
        )  # tools are repeated as they came

    def _step(self, what: str, then: str) -> None:
        if what not in _LEGAL[self._state]:
            raise AssertionError(f"responses emitter: {what} in state {self._state}")
        self._state = then


def frames(sent: bytes) -> list[str]:
    """The events of a stream one by one as JSON text: what goes over a WebSocket, a message each."""
    blocks = sent.decode().split("\n\n")
    return [line.removeprefix("data: ") for block in blocks for line in block.split("\n") if line.startswith("data: ")]
