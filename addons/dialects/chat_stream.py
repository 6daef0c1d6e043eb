"""OpenAI Chat Completions: writing a reply, streamed or whole.

Theory of operation of the emitter: deltas come in, `chat.completion.chunk` events go out. The first chunk
carries the role, so a harness sees that the model has begun; then text, reasoning and tool calls in the
order sampled; then one chunk with `finish_reason`, at most one with `usage`, and `[DONE]`. Which step may
follow which is the table `_LEGAL`; anything else is a bug of ours and raises.
"""

from __future__ import annotations

from typing import Any

import orjson

from addons.conversation import Call, Delta, ReasoningDelta, Reply, TextDelta, ToolCall, ToolCallDelta, Usage
from addons.errors import BadRequest, CallError


def usage_of(usage: Usage) -> dict[str, Any]:
    """A `usage` object."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    }  # fmt: skip


_FINISH = {
    "stop": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "abort": "stop",
}

# state -> what may come next
_LEGAL = {
    "idle": {"start"},
    "open": {"delta", "finish"},
    "finished": set[str](),
}


def _whole_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


class Emitter:
    """One reply on the wire. Sans-IO: each method returns the bytes to send now."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, call: Call, reply_id: str, created: int) -> None:
        self._call = call
        self._head = {
            "id": reply_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": call.model,
        }
        self._state = "idle"

    def start(self, prompt_tokens: int) -> bytes:
        """The model has been asked."""
        self._step("start", "open")
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def delta(self, delta: Delta, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        """More of the reply."""
        self._step("delta", "open")
        match delta:
            case TextDelta(text):
                return self._chunk({"content": text}, logprobs=logprobs)
            case ReasoningDelta(text):
                return self._chunk({"reasoning_content": text}, logprobs=logprobs)
            case ToolCallDelta() if self._call.options.get("whole_tool_calls"):
                return b""  # the finish brings them
            case ToolCallDelta(index, arguments, id_, name):
                call: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
                if name is not None:
                    call = {"index": index, "id": id_, "type": "function"}
                    call["function"] = {"name": name, "arguments": arguments}
                return self._chunk({"tool_calls": [call]}, logprobs=logprobs)

    def silence(self) -> bytes:
        """A comment, as DeepSeek and OpenRouter send it, and an empty delta: SSE readers keep comments to themselves,
        and a harness that watches for chunks would give the stream up.
        """
        self._step("delta", "open")
        return b": keep-alive\n\n" + self._chunk({})

    def finish(self, reply: Reply, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        """The terminal events."""
        self._step("finish", "finished")
        out = b""
        if self._call.options.get("whole_tool_calls") and reply.message.tool_calls:
            calls = [{"index": i, **_whole_call(call)} for i, call in enumerate(reply.message.tool_calls)]
            out = self._chunk({"tool_calls": calls})
        out += self._chunk({}, finish=_FINISH[reply.finish], logprobs=logprobs)
        if self._call.options.get("include_usage"):
            out += _event({**self._head, "choices": [], "usage": usage_of(reply.usage)})
        return out + b"data: [DONE]\n\n"

    def fail(self, error: CallError) -> bytes:
        """An error after the stream has begun: the SDKs raise on an event with `error`."""
        self._step("finish", "finished")
        return _event(error_body(error))

    def whole(self, reply: Reply, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        """The reply of a call that did not ask to stream."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.message.content or None,
            "refusal": None,
        }
        if reply.message.reasoning:
            message["reasoning_content"] = reply.message.reasoning
        if reply.message.tool_calls:
            message["tool_calls"] = list(map(_whole_call, reply.message.tool_calls))
        elif message["content"] is None:
            message["content"] = ""
        choice = {
            "index": 0, "message": message, "finish_reason": _FINISH[reply.finish],
            "logprobs": None if logprobs is None else {"content": logprobs, "refusal": None},
        }  # fmt: skip
        return orjson.dumps(
            {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage_of(reply.usage)}
        )

    def _chunk(
        self,
        delta: dict[str, Any],
        *,
        finish: str | None = None,
        logprobs: list[dict[str, Any]] | None = None,
    ) -> bytes:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        if logprobs is not None:
            choice["logprobs"] = {"content": logprobs, "refusal": None}
        chunk: dict[str, Any] = {**self._head, "choices": [choice]}
        if self._call.options.get("include_usage"):
            chunk["usage"] = None
        return _event(chunk)

    def _step(self, what: str, then: str) -> None:
        if what not in _LEGAL[self._state]:
            raise AssertionError(f"chat emitter: {what} in state {self._state}")
        self._state = then


_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    429: ("requests", "rate_limit_exceeded"),
}
"""Type and code by HTTP status, where the provider has its own."""


def error_body(error: CallError) -> dict[str, Any]:
    """The provider's error object."""
    usual = ("server_error" if error.status >= 500 else "invalid_request_error", None)
    kind, code = _ERRORS.get(error.status, usual)
    if isinstance(error, BadRequest):
        code = "invalid_value"
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code or code}}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
