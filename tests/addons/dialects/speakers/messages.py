"""Anthropic Messages, by the anthropic SDK."""

from __future__ import annotations

from typing import Any

import httpx2
from anthropic import Anthropic
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.addons.dialects.speakers.base import SCHEMA, Ask, Block, Table, arguments, events, walk

_BETWEEN = {
    "ping": "between",
    "thinking": "thinking",
    "text": "text",
    "tool_use": "tool_use",
    "message_delta": "ended",
}
TABLE: Table = {
    "idle": {"message_start": "between"},
    "between": _BETWEEN,
    # No block is empty: each wants a piece before it stops. Thinking wants its signature too.
    "thinking": {"ping": "thinking", "silence": "thinking", "thinking_delta": "thought"},
    "thought": {"ping": "thought", "silence": "thought", "thinking_delta": "thought", "signature_delta": "said"},
    "text": {"ping": "text", "silence": "text", "text_delta": "texted"},
    "texted": {"ping": "texted", "silence": "texted", "text_delta": "texted", "content_block_stop": "between"},
    "tool_use": {"ping": "tool_use", "silence": "tool_use", "input_json_delta": "called"},
    "called": {"ping": "called", "silence": "called", "input_json_delta": "called", "content_block_stop": "between"},
    "said": {"content_block_stop": "between"},
    "ended": {"message_stop": "over"},
    "over": {},
}
_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
_FINISHES = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "stop_sequence": "stop_sequence"}


class Messages:
    """See `Speaker`."""

    name, prefix, ordered = "messages", "toolu_", True

    def path(self, *, stream: bool) -> str:
        return "/v1/messages"

    def body(self, ask: Ask, *, stream: bool) -> dict[str, Any]:
        return {
            "model": "m", "max_tokens": ask.max_tokens, "messages": [{"role": "user", "content": ask.user}],
            **({"stream": True} if stream else {}),
            **({"stop_sequences": list(ask.stop)} if ask.stop else {}),
            **({"tools": [{"name": "bash", "input_schema": SCHEMA}]} if ask.tools else {}),
        }  # fmt: skip

    def whole(self, raw: bytes) -> dict[str, Any]:
        Message.model_validate_json(raw, strict=True)
        return _plain(_answering(raw, "application/json").messages.create(**_MINIMAL))

    def streamed(self, raw: bytes) -> dict[str, Any]:
        with _answering(raw, "text/event-stream").messages.stream(**_MINIMAL) as stream:
            return _plain(stream.get_final_message())

    def wire(self, raw: bytes) -> None:
        found = events(raw)
        opened = 0
        for kind, data in found:
            assert kind == data["type"]
            if kind != "ping":
                _EVENT.validate_python(data)
            if kind == "content_block_start":
                assert data["index"] == opened
                opened += 1
            elif kind is not None and kind.startswith("content_block"):
                assert data["index"] == opened - 1
        walk(TABLE, [_kind(data) for _, data in found])

    def blocks(self, dump: dict[str, Any]) -> list[Block]:
        return [_block(block) for block in dump["content"]]

    def call_ids(self, dump: dict[str, Any]) -> list[str]:
        return [block["id"] for block in dump["content"] if block["type"] == "tool_use"]

    def finish(self, dump: dict[str, Any]) -> str:
        return str(dump["stop_reason"])

    def finishes(self, neutral: str) -> str:
        return _FINISHES[neutral]

    def usage(self, dump: dict[str, Any]) -> tuple[int, int, int]:
        usage = dump["usage"]
        prompt = sum(usage[key] for key in usage if key.endswith("input_tokens"))
        return prompt, usage["output_tokens"], usage["output_tokens_details"]["thinking_tokens"]

    def reply_id(self, dump: dict[str, Any]) -> str:
        return str(dump["id"])

    def next_body(self, ask: Ask, dump: dict[str, Any]) -> dict[str, Any]:
        body = self.body(ask, stream=False)
        results = [
            {"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": "done"}]}
            for call in self.call_ids(dump)
        ]
        more = [*results, {"type": "text", "text": "and now?"}]
        body["messages"] += [{"role": "assistant", "content": dump["content"]}, {"role": "user", "content": more}]
        return body


_MINIMAL: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}


def _answering(raw: bytes, content_type: str) -> Anthropic:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=raw, headers={"content-type": content_type})

    return Anthropic(api_key="k", max_retries=0, http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))


def _kind(data: dict[str, Any]) -> str:
    match data["type"]:
        case "content_block_start":
            return str(data["content_block"]["type"])
        case "content_block_delta":
            kind, *text = data["delta"].values()
            return str(kind) if text != [""] else "silence"
    return str(data["type"])


def _block(block: dict[str, Any]) -> Block:
    match block["type"]:
        case "thinking":
            assert block["signature"]
            return ("reasoning", block["thinking"])
        case "text":
            return ("text", block["text"])
    return ("call", block["name"], arguments(block["input"]))


def _plain(message: Message) -> dict[str, Any]:
    dump = message.model_dump(mode="json", exclude_none=True)
    for block in dump["content"]:
        block.pop("parsed_output", None)
    for told_once in ("cache_creation", "service_tier"):  # at the start of a stream
        dump["usage"].pop(told_once, None)
    return dump
