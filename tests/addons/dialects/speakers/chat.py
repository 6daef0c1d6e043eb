"""Chat Completions, by the openai SDK."""

from __future__ import annotations

from typing import Any

import httpx2
from openai import LengthFinishReasonError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.addons.dialects.speakers.base import SCHEMA, Ask, Block, Table, arguments, events, walk

_OPEN = {"content": "open", "reasoning": "open", "silence": "open", "call": "called", "finish": "finished"}
TABLE: Table = {
    "idle": {"role": "open"},
    "open": _OPEN,
    "called": {**_OPEN, "arguments": "called", "silence": "called"},
    "finished": {"usage": "counted"},
    "counted": {"[DONE]": "over"},
    "over": {},
}


class Chat:
    """See `Speaker`."""

    name, prefix, ordered = "chat", "call_", False

    def path(self, *, stream: bool) -> str:
        return "/v1/chat/completions"

    def body(self, ask: Ask, *, stream: bool) -> dict[str, Any]:
        return {
            "model": "m", "messages": [{"role": "user", "content": ask.user}], "max_completion_tokens": ask.max_tokens,
            **({"stream": True, "stream_options": {"include_usage": True}} if stream else {}),
            **({"stop": list(ask.stop)} if ask.stop else {}),
            **({"tools": [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]}
               if ask.tools else {}),
        }  # fmt: skip

    def whole(self, raw: bytes) -> dict[str, Any]:
        ChatCompletion.model_validate_json(raw, strict=True)
        return _plain(_answering(raw, "application/json").chat.completions.create(**_MINIMAL).to_dict())

    def streamed(self, raw: bytes) -> dict[str, Any]:
        with _answering(raw, "text/event-stream").chat.completions.stream(**_MINIMAL) as stream:
            try:
                final: ChatCompletion = stream.get_final_completion()
            except LengthFinishReasonError as cut:  # the accumulator's way to say it
                final = cut.completion
        return _plain(final.to_dict())

    def wire(self, raw: bytes) -> None:
        found = events(raw)
        chunks = [data for kind, data in found if kind is None and data != "[DONE]"]
        for chunk in chunks:
            ChatCompletionChunk.model_validate(chunk, strict=True)
        assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
        walk(TABLE, ["silence" if kind == ":" else _kind(data) for kind, data in found])
        calls = [c for chunk in chunks for choice in chunk["choices"] for c in choice["delta"].get("tool_calls", ())]
        begun = [call["index"] for call in calls if "id" in call]
        assert begun == list(range(len(begun)))
        for call in calls:  # id, type and name in a call's first chunk, and nowhere else
            first = "id" in call
            assert (first, first) == ("type" in call, "name" in call["function"])

    def blocks(self, dump: dict[str, Any]) -> list[Block]:
        message = dump["choices"][0]["message"]
        out: list[Block] = []
        for kind, key in (("reasoning", "reasoning_content"), ("text", "content")):
            if message.get(key):
                out.append((kind, message[key]))
        calls = message.get("tool_calls") or ()
        return out + [("call", c["function"]["name"], arguments(c["function"]["arguments"])) for c in calls]

    def call_ids(self, dump: dict[str, Any]) -> list[str]:
        return [call["id"] for call in dump["choices"][0]["message"].get("tool_calls") or ()]

    def finish(self, dump: dict[str, Any]) -> str:
        return str(dump["choices"][0]["finish_reason"])

    def finishes(self, neutral: str) -> str:
        return "stop" if neutral == "stop_sequence" else neutral

    def usage(self, dump: dict[str, Any]) -> tuple[int, int, int]:
        usage = dump["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        details = usage["completion_tokens_details"]
        return usage["prompt_tokens"], usage["completion_tokens"], details["reasoning_tokens"]

    def reply_id(self, dump: dict[str, Any]) -> str:
        return str(dump["id"])

    def next_body(self, ask: Ask, dump: dict[str, Any]) -> dict[str, Any]:
        body = self.body(ask, stream=False)
        message = dump["choices"][0]["message"]
        body["messages"] += [
            message,
            *(
                {"role": "tool", "tool_call_id": call["id"], "content": "done"}
                for call in message.get("tool_calls", ())
            ),
            {"role": "user", "content": "and now?"},
        ]
        return body


_MINIMAL: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def _answering(raw: bytes, content_type: str) -> OpenAI:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=raw, headers={"content-type": content_type})

    return OpenAI(api_key="k", max_retries=0, http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))


def _kind(data: Any) -> str:
    """What a chunk says; it says one thing."""
    if data == "[DONE]":
        return "[DONE]"
    if not data["choices"]:
        assert data["usage"]
        return "usage"
    assert data["usage"] is None
    [choice] = data["choices"]
    delta = choice["delta"]
    if choice["finish_reason"] is not None:
        assert delta == {}
        return "finish"
    if "role" in delta:
        assert delta == {"role": "assistant", "content": "", "refusal": None}
        return "role"
    if not delta:
        return "silence"
    [(key, value)] = delta.items()
    assert value, "an empty piece"
    if key == "tool_calls":
        [call] = value
        return "call" if "id" in call else "arguments"
    return {"content": "content", "reasoning_content": "reasoning"}[key]


def _plain(dump: dict[str, Any]) -> dict[str, Any]:
    """Without what the SDK's own classes add to what came."""
    [choice] = dump["choices"]
    choice.pop("logprobs", None)
    message = choice["message"]
    for added in ("parsed", "refusal"):
        message.pop(added, None)
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    # A stream says "" before it knows that there will be calls only; a whole reply says null.
    message["content"] = message.get("content") or None
    dump["choices"][0]["message"] = {key: value for key, value in message.items() if value is not None}
    return dump
