"""Mistral's accent of Chat Completions: its SDK refuses a tool call that comes in parts (seen with Vibe)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from addons.conversation import Message, Reply, TextDelta, ToolCall, ToolCallDelta, Usage
from addons.dialects.base import DIALECTS, Target

BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
CALLS = (ToolCall("call_1", "bash", '{"command": "ls"}'), ToolCall("call_2", "bash", '{"command": "pwd"}'))


def chunks(provider: str) -> list[dict[str, Any]]:
    """What is streamed for a text and two calls, each sampled in two pieces."""
    chat = DIALECTS["chat"]
    call = chat.read(BODY, Target(provider=provider), lambda *_: None)  # type: ignore[arg-type, return-value]
    emitter = chat.emitter(call, "chatcmpl-1", 0)
    out = emitter.start(3) + emitter.delta(TextDelta("Look:"))
    for index, one in enumerate(CALLS):
        out += emitter.delta(ToolCallDelta(index, one.arguments[:5], one.id, one.name))
        out += emitter.delta(ToolCallDelta(index, one.arguments[5:]))
    out += emitter.finish(Reply(Message("assistant", "Look:", tool_calls=CALLS), "tool_calls", Usage(3, 9)))
    events = [line.removeprefix("data: ") for line in out.decode().split("\n\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


@pytest.mark.parametrize(("provider", "pieces"), [("mistral", [2]), ("openai", [1, 1, 1, 1])])
def test_mistral_gets_its_tool_calls_whole(provider: str, pieces: list[int]) -> None:
    deltas = [c["choices"][0]["delta"].get("tool_calls") for c in chunks(provider) if c["choices"]]
    assert [len(calls) for calls in deltas if calls] == pieces
    if provider == "mistral":
        [calls] = [calls for calls in deltas if calls]
        assert [c["function"] for c in calls] == [{"name": c.name, "arguments": c.arguments} for c in CALLS]
        assert [(c["index"], c["id"], c["type"]) for c in calls] == [
            (0, "call_1", "function"),
            (1, "call_2", "function"),
        ]


def test_mistral_tells_the_usage_unasked() -> None:
    assert chunks("mistral")[-1]["usage"]["total_tokens"] == 12
    assert not any(c.get("usage") for c in chunks("openai"))
