"""Gemini, by the google-genai SDK."""

from __future__ import annotations

import json
from typing import Any

import httpx
from google import genai
from google.genai import types

from tests.addons.dialects.speakers.base import SCHEMA, Ask, Block, Table, arguments, walk

TABLE: Table = {
    "idle": {"silence": "idle", "text": "idle", "thought": "idle", "call": "idle", "finish": "over"},
    "over": {},
}
_MODEL = "gemini-x"


class Gemini:
    """See `Speaker`."""

    name, prefix, ordered = "gemini", "function-call-", True

    def path(self, *, stream: bool) -> str:
        return f"/v1beta/models/{_MODEL}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"

    def body(self, ask: Ask, *, stream: bool) -> dict[str, Any]:
        config: dict[str, Any] = {
            "maxOutputTokens": ask.max_tokens,
            "thinkingConfig": {"includeThoughts": True},
            **({"stopSequences": list(ask.stop)} if ask.stop else {}),
        }
        declared = {"functionDeclarations": [{"name": "bash", "parametersJsonSchema": SCHEMA}]}
        return {
            "contents": [{"role": "user", "parts": [{"text": ask.user}]}],
            "generationConfig": config,
            **({"tools": [declared]} if ask.tools else {}),
        }

    def whole(self, raw: bytes) -> dict[str, Any]:
        client = _answering(raw, "application/json")  # it closes its connections when nobody holds it
        return _dump(client.models.generate_content(model=_MODEL, contents="x"))

    def streamed(self, raw: bytes) -> dict[str, Any]:
        """The SDK accumulates nothing; harnesses join the texts of one kind, and so does this."""
        client = _answering(raw, "text/event-stream")
        got = [_dump(one) for one in client.models.generate_content_stream(model=_MODEL, contents="x")]
        parts: list[dict[str, Any]] = []
        for one in got:
            for part in one["candidates"][0]["content"]["parts"]:
                last = parts[-1] if parts else {}
                if "text" in part and "text" in last and part.get("thought") == last.get("thought"):
                    parts[-1] = {**last, **part, "text": last["text"] + part["text"]}
                elif part.get("text") != "" or "thoughtSignature" in part or not parts:
                    parts.append(part)
        final = got[-1]
        final["candidates"][0]["content"]["parts"] = parts
        return final

    def wire(self, raw: bytes) -> None:
        found = [line.removeprefix("data: ") for line in raw.decode().split("\r\n") if line]
        objects = [json.loads(line) for line in found]
        kinds = [_kind(one) for one in objects]
        walk(TABLE, kinds)
        assert len({(one["responseId"], one["modelVersion"]) for one in objects}) == 1
        signed = [part for one in objects for part in _parts(one) if "thoughtSignature" in part]
        assert len(signed) == 1
        calls = [part["functionCall"]["id"] for one in objects for part in _parts(one) if "functionCall" in part]
        assert len(set(calls)) == len(calls)

    def blocks(self, dump: dict[str, Any]) -> list[Block]:
        return [block for part in _parts(dump) if (block := _block(part)) is not None]

    def call_ids(self, dump: dict[str, Any]) -> list[str]:
        return [part["functionCall"]["id"] for part in _parts(dump) if "functionCall" in part]

    def finish(self, dump: dict[str, Any]) -> str:
        return str(dump["candidates"][0]["finishReason"])

    def finishes(self, neutral: str) -> str:
        return "MAX_TOKENS" if neutral == "length" else "STOP"

    def usage(self, dump: dict[str, Any]) -> tuple[int, int, int]:
        usage = dump["usageMetadata"]
        thoughts = usage.get("thoughtsTokenCount", 0)
        completion = usage.get("candidatesTokenCount", 0) + thoughts
        assert usage["totalTokenCount"] == usage["promptTokenCount"] + completion
        return usage["promptTokenCount"], completion, thoughts

    def reply_id(self, dump: dict[str, Any]) -> str:
        return str(dump["responseId"])

    def next_body(self, ask: Ask, dump: dict[str, Any]) -> dict[str, Any]:
        body = self.body(ask, stream=False)
        answers = [
            {"functionResponse": {"id": call, "name": "bash", "response": {"output": "done"}}}
            for call in self.call_ids(dump)
        ]
        content = dump["candidates"][0]["content"]
        body["contents"] += [content, {"role": "user", "parts": [*answers, {"text": "and now?"}]}]
        return body


def _answering(raw: bytes, content_type: str) -> genai.Client:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=raw, headers={"content-type": content_type})

    options = types.HttpOptions(client_args={"transport": httpx.MockTransport(answer)}, base_url="http://gemini.test")
    return genai.Client(api_key="k", http_options=options)


def _dump(response: types.GenerateContentResponse) -> dict[str, Any]:
    dump: dict[str, Any] = response.model_dump(mode="json", by_alias=True, exclude_none=True)
    for local in ("sdkHttpResponse", "automaticFunctionCallingHistory", "parsed"):
        dump.pop(local, None)
    return dump


def _parts(dump: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = dump["candidates"][0]["content"]["parts"]
    return parts


def _kind(one: dict[str, Any]) -> str:
    """What an object of a stream says; it says one thing, and has a part to say it with."""
    [candidate] = one["candidates"]
    [part] = candidate["content"]["parts"]
    assert candidate["content"]["role"] == "model"
    if "finishReason" in candidate:
        assert part["text"] == ""
        return "finish"
    if "functionCall" in part:
        return "call"
    assert part["text"], "an empty piece"
    return "thought" if part.get("thought") else "text"


def _block(part: dict[str, Any]) -> Block | None:
    if "functionCall" in part:
        return ("call", part["functionCall"]["name"], arguments(part["functionCall"]["args"]))
    kind = "reasoning" if part.get("thought") else "text"
    return (kind, part["text"]) if part["text"] else None
