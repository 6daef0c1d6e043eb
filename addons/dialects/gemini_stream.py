"""Gemini's reply, streamed or whole.

Theory of operation of the emitter: deltas come in, `GenerateContentResponse` objects go out, one a delta, as
server-sent events or as the items of one JSON array that grows. There is no opening or closing of blocks: each
object has a part. A function call is sent once its arguments are complete; reasoning only when it was asked for
(`includeThoughts`). The last object alone has `finishReason`, with the whole usage.

What the clients' stream checks ask for, and so what is kept here:

- No content without a part, and no empty object as a part: Google's SDKs drop such a turn from their history. The
  last object therefore has an empty text, where the thought signature of a text rides, as it does from Gemini 3.
- An empty reply and one of nothing but reasoning end like any other, with STOP or MAX_TOKENS and empty text.
  Gemini CLI then asks again by itself, as it does with Gemini.
- No SSE comments: the Python SDK takes every line that is not `data: ` for raw JSON. Empty lines are what is
  skipped by all.
- An error in mid-stream is raw JSON, without `data: `: the JavaScript SDK raises on nothing else.
"""

from __future__ import annotations

from typing import Any

import orjson

from addons.conversation import Call, Delta, ReasoningDelta, Reply, TextDelta, ToolCall, ToolCallDelta, Usage
from addons.dialects.gemini_errors import error_body
from addons.dialects.gemini_signature import thought_signature
from addons.dialects.said import parts
from addons.errors import CallError
from replay import codec

Logprobs = list[dict[str, Any]] | None

_FINISH = {"stop": "STOP", "stop_sequence": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "abort": "OTHER"}

# state -> what may come next
_LEGAL = {
    "idle": {"start"},
    "open": {"delta", "finish"},
    "finished": set[str](),
}


class Emitter:
    """One reply on the wire. Sans-IO: each method returns the bytes to send now."""

    def __init__(self, call: Call, reply_id: str, created: int) -> None:
        """`created` is not said: the provider's own objects have no time."""
        self._array = bool(call.options.get("array"))
        self.content_type = "application/json; charset=UTF-8" if self._array else "text/event-stream"
        self._thoughts = bool(call.options.get("thoughts"))
        self._tail = {"modelVersion": call.model, "responseId": reply_id}
        self._signature = thought_signature(reply_id)
        self._state = "idle"
        self._sent = 0
        self._signed = False
        self._call: ToolCall | None = None
        self._known: dict[str, Any] = {}
        self._held: list[dict[str, Any]] = []
        """Logprobs that wait for the next object."""
        self._logprobs: list[float] = []

    def start(self, prompt_tokens: int) -> bytes:
        """The model has been asked. Gemini says nothing before its first part."""
        self._step("start", "open")
        self._known = _usage(Usage(prompt_tokens, 0))
        return b"[" if self._array else b""

    def delta(self, delta: Delta, logprobs: Logprobs = None) -> bytes:
        """More of the reply."""
        self._step("delta", "open")
        self._held += logprobs or []
        match delta:
            case TextDelta(text):
                return self._complete_call() + self._part({"text": text})
            case ReasoningDelta(text):
                if not self._thoughts:
                    # Minutes may pass until there is something to show.
                    return self._complete_call() + self.silence()
                return self._complete_call() + self._part({"text": text, "thought": True})
            case ToolCallDelta(_, arguments, id_, name):
                out = b""
                if name is not None:
                    out = self._complete_call()
                    self._call = ToolCall(id_ or "", name, "")
                assert self._call is not None
                self._call = ToolCall(self._call.id, self._call.name, self._call.arguments + arguments)
                return out + (self._complete_call() if _is_object(self._call.arguments) else b"")

    def silence(self) -> bytes:
        """An empty line, which every reader of either form skips."""
        return b"\r\n"

    def finish(self, reply: Reply, logprobs: Logprobs = None) -> bytes:
        """The terminal object."""
        out = self._complete_call()
        self._step("finish", "finished")
        self._held += logprobs or []
        self._known = _usage(reply.usage)
        out += self._part(self._sign({"text": ""}), finish=_FINISH[reply.finish])
        return out + (b"]" if self._array else b"")

    def fail(self, error: CallError) -> bytes:
        """An error after the stream has begun."""
        self._step("finish", "finished")
        body = orjson.dumps(error_body(error))
        return (b",\r\n" if self._sent else b"") + body + b"]" if self._array else body

    def whole(self, reply: Reply, logprobs: Logprobs = None) -> bytes:
        """The reply of a call that did not ask to stream."""
        made: list[dict[str, Any]] = []
        for part in parts(reply):
            match part:
                case ReasoningDelta(text):
                    if self._thoughts:
                        made.append({"text": text, "thought": True})
                case TextDelta(text):
                    made.append({"text": text})
                case ToolCall():
                    made.append(self._function_call(part))
        if not made or all("thought" in part for part in made):
            made.append({"text": ""})
        if not reply.message.tool_calls:
            made[-1] = self._sign(made[-1])
        self._held = list(logprobs or [])
        return orjson.dumps(self._object(made, _usage(reply.usage), _FINISH[reply.finish]))

    def _complete_call(self) -> bytes:
        if self._call is None:
            return b""
        call, self._call = self._call, None
        return self._part(self._function_call(call))

    def _function_call(self, call: ToolCall) -> dict[str, Any]:
        if not _is_object(call.arguments):
            raise AssertionError(f"gemini emitter: arguments of {call.name} are no JSON object: {call.arguments!r}")
        part = {"functionCall": {"name": call.name, "args": orjson.Fragment(call.arguments), "id": call.id}}
        return self._sign(part)

    def _sign(self, part: dict[str, Any]) -> dict[str, Any]:
        """The signature is on the first function call, or else on the end of the text."""
        if self._signed:
            return part
        self._signed = True
        return {**part, "thoughtSignature": self._signature}

    def _part(self, part: dict[str, Any], finish: str | None = None) -> bytes:
        body = orjson.dumps(self._object([part], self._known, finish))
        self._sent += 1
        if not self._array:
            return b"data: " + body + b"\r\n\r\n"
        return b",\r\n" + body if self._sent > 1 else body

    def _object(self, parts: list[dict[str, Any]], usage: dict[str, Any], finish: str | None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}}
        if finish is not None:
            candidate["finishReason"] = finish
        candidate["index"] = 0
        if self._held:
            candidate["logprobsResult"] = _logprobs_result(self._held)
            self._logprobs += [entry["logprob"] for entry in self._held]
            self._held = []
        if finish is not None and self._logprobs:
            candidate["avgLogprobs"] = sum(self._logprobs) / len(self._logprobs)
        return {"candidates": [candidate], "usageMetadata": usage, **self._tail}

    def _step(self, what: str, then: str) -> None:
        if what not in _LEGAL[self._state]:
            raise AssertionError(f"gemini emitter: {what} in state {self._state}")
        self._state = then


def _usage(usage: Usage) -> dict[str, Any]:
    """`usageMetadata`: candidates and thoughts together are the sampled tokens."""
    said: dict[str, Any] = {"promptTokenCount": usage.prompt}
    if usage.completion:
        said["candidatesTokenCount"] = usage.completion - usage.reasoning
    said["totalTokenCount"] = usage.prompt + usage.completion
    if usage.cached:
        said["cachedContentTokenCount"] = usage.cached
    said["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": usage.prompt}]
    if usage.cached:
        said["cacheTokensDetails"] = [{"modality": "TEXT", "tokenCount": usage.cached}]
    if usage.reasoning:
        said["thoughtsTokenCount"] = usage.reasoning
    return said


def _logprobs_result(entries: list[dict[str, Any]]) -> dict[str, Any]:
    chosen = [{"token": entry["token"], "logProbability": entry["logprob"]} for entry in entries]
    top = [
        {"candidates": [{"token": t["token"], "logProbability": t["logprob"]} for t in entry.get("top_logprobs") or []]}
        for entry in entries
    ]
    result: dict[str, Any] = {"chosenCandidates": chosen}
    if any(step["candidates"] for step in top):
        result["topCandidates"] = top
    return result


def _is_object(text: str) -> bool:
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(codec.loads(text), dict)  # orjson alone refuses half a character
    except ValueError:
        return False
