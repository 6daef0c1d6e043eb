"""OpenAI Responses, by the openai SDK."""

from __future__ import annotations

from typing import Any

import httpx2
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.addons.dialects.speakers.base import SCHEMA, Ask, Block, Table, arguments, events, walk

_TEXT = "response.output_text"
_THOUGHT = "response.reasoning_text"
_CALL = "response.function_call_arguments"
TABLE: Table = {
    "idle": {"response.created": "created"},
    "created": {"response.in_progress": "between"},
    "between": {
        "message": "message", "reasoning": "reasoning", "function_call": "call", "keepalive": "between",
        "response.completed": "over", "response.incomplete": "over",
    },
    "message": {"keepalive": "message", "response.content_part.added": "text"},
    # An empty reply is a message with an empty text.
    "text": {"keepalive": "text", f"{_TEXT}.delta": "text", f"{_TEXT}.done": "text done"},
    "text done": {"response.content_part.done": "item done"},
    "reasoning": {"keepalive": "reasoning", "response.content_part.added": "thought"},
    "thought": {"keepalive": "thought", f"{_THOUGHT}.delta": "thought", f"{_THOUGHT}.done": "thought done"},
    "thought done": {"response.content_part.done": "item done"},
    "call": {"keepalive": "call", f"{_CALL}.delta": "called"},
    "called": {"keepalive": "called", f"{_CALL}.delta": "called", f"{_CALL}.done": "item done"},
    "item done": {"response.output_item.done": "between"},
    "over": {},
}  # fmt: skip
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_TERMINAL = ("response.completed", "response.incomplete")
_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}


class Responses:
    """See `Speaker`."""

    name, prefix, ordered = "responses", "call_", True

    def path(self, *, stream: bool) -> str:
        return "/v1/responses"

    def body(self, ask: Ask, *, stream: bool) -> dict[str, Any]:
        assert not ask.stop, "Responses has no stop strings"
        return {
            "model": "m", "store": False, "max_output_tokens": ask.max_tokens,
            "input": [{"role": "user", "content": ask.user}], "include": ["reasoning.encrypted_content"],
            **({"stream": True} if stream else {}),
            **({"tools": [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}]}
               if ask.tools else {}),
        }  # fmt: skip

    def whole(self, raw: bytes) -> dict[str, Any]:
        Response.model_validate_json(raw)
        return _answering(raw, "application/json").responses.create(model="m", input="x").to_dict()

    def streamed(self, raw: bytes) -> dict[str, Any]:
        final: dict[str, Any] = {}
        for event in _answering(raw, "text/event-stream").responses.create(model="m", input="x", stream=True):
            if event.type in _TERMINAL:
                final = event.response.to_dict()  # type: ignore[union-attr]
        if final["status"] == "completed":  # the only end that the SDK's accumulator knows
            with _answering(raw, "text/event-stream").responses.stream(model="m", input="x") as stream:
                accumulated = stream.get_final_response().to_dict()
            assert _unparsed(accumulated)["output"] == final["output"]
        return final

    def wire(self, raw: bytes) -> None:
        found = events(raw)
        assert [data["sequence_number"] for _, data in found] == list(range(len(found)))
        kinds: list[str] = []
        items: list[dict[str, Any]] = []
        pieces = ""
        for kind, data in found:
            assert kind == data["type"]
            if kind != "keepalive":
                _EVENT.validate_python(data)
            kinds.append(data["item"]["type"] if kind == "response.output_item.added" else str(kind))
            if kind == "response.output_item.added":
                items.append(data["item"])
                pieces = ""
            if "output_index" in data:
                assert data["output_index"] == len(items) - 1
                assert data.get("item_id", items[-1]["id"]) == items[-1]["id"]
                assert data.get("content_index", 0) == 0
            if kind is not None and kind.endswith(".delta"):
                assert data["delta"], "an empty piece"
                pieces += data["delta"]
            for key in ("text", "arguments"):
                assert data.get(key, pieces) == pieces
            if kind == "response.output_item.done":
                assert {**items[-1], **data["item"]} == data["item"]
                items[-1] = data["item"]
        walk(TABLE, kinds)
        assert found[-1][1]["response"]["output"] == items
        assert all(item["id"].startswith(_PREFIXES[item["type"]]) for item in items)
        assert len({item["id"] for item in items}) == len(items)

    def blocks(self, dump: dict[str, Any]) -> list[Block]:
        return [block for item in dump["output"] for block in _blocks(item)]

    def call_ids(self, dump: dict[str, Any]) -> list[str]:
        return [item["call_id"] for item in dump["output"] if item["type"] == "function_call"]

    def finish(self, dump: dict[str, Any]) -> str:
        details = dump.get("incomplete_details")
        return f"{dump['status']} {details['reason']}" if details else str(dump["status"])

    def finishes(self, neutral: str) -> str:
        return "incomplete max_output_tokens" if neutral == "length" else "completed"

    def usage(self, dump: dict[str, Any]) -> tuple[int, int, int]:
        usage = dump["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        return usage["input_tokens"], usage["output_tokens"], usage["output_tokens_details"]["reasoning_tokens"]

    def reply_id(self, dump: dict[str, Any]) -> str:
        return str(dump["id"])

    def next_body(self, ask: Ask, dump: dict[str, Any]) -> dict[str, Any]:
        body = self.body(ask, stream=False)
        results = [{"type": "function_call_output", "call_id": c, "output": "done"} for c in self.call_ids(dump)]
        body["input"] += [*dump["output"], *results, {"role": "user", "content": "and now?"}]
        return body


def _answering(raw: bytes, content_type: str) -> OpenAI:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=raw, headers={"content-type": content_type})

    return OpenAI(api_key="k", max_retries=0, http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))


def _blocks(item: dict[str, Any]) -> list[Block]:
    match item["type"]:
        case "message":
            return [("text", part["text"]) for part in item["content"] if part["text"]]
        case "reasoning":
            return [("reasoning", part["text"]) for part in item["content"]]
    return [("call", item["name"], arguments(item["arguments"]))]


def _unparsed(dump: dict[str, Any]) -> dict[str, Any]:
    """Without what the SDK's parsed classes add."""
    for item in dump["output"]:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return dump
