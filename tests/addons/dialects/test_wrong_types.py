"""Every field of a rich request, missing and with a value of each wrong type: a reply, or the dialect's 400 that names
the field, and never a fault of ours."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.addons.dialects.asking import USE, USER, function, tool
from tests.addons.dialects.served import Served
from tests.addons.dialects.speakers.base import SCHEMA
from tests.addons.dialects.test_field_cases import DECLARED, FLAT, PATHS

pytestmark = pytest.mark.slow

PIXEL = "iVBORw0KGgo="
MISSING = object()
WRONG: tuple[Any, ...] = (MISSING, 7, -1.5, 10**30, "zzz", True, [], {}, [None], [{"zzz": 1}])

NO_REQUEST = (
    b"", b"{", b'{"model":', b"\xff\xfe", b'{"a":NaN}', b'{"a":1e400}', b"[" * 100_000, b"[]", b"null", b'"x"', b"{}",
)  # fmt: skip

RICH: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [
                {"type": "text", "text": "hi"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}]},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "out"},
        ],
        "tools": [function()], "tool_choice": "auto", "parallel_tool_calls": True, "stream": False,
        "stream_options": {"include_usage": True}, "temperature": 1, "top_p": 1, "n": 1, "max_tokens": 5, "stop": ["x"],
        "seed": 1, "logit_bias": {"5": 1}, "logprobs": True, "top_logprobs": 2, "presence_penalty": 0.1,
        "response_format": {"type": "text"}, "reasoning_effort": "low", "metadata": {"a": "b"}, "user": "u",
    },
    "responses": {
        "model": "m",
        "input": [
            {"role": "user", "content": [
                {"type": "input_text", "text": "hi"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}]},
            {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "o"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "t"}]},
            USER,
        ],
        "instructions": "i", "tools": [FLAT], "tool_choice": "auto", "parallel_tool_calls": True, "stream": False,
        "temperature": 1, "top_p": 1, "max_output_tokens": 16, "store": False,
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "metadata": {"a": "b"},
    },
    "messages": {
        "model": "m", "max_tokens": 64,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "hi"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}]},
            USE,
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "listed"},
                {"type": "text", "text": "go"}]},
        ],
        "tools": [tool()], "tool_choice": {"type": "auto", "disable_parallel_tool_use": False}, "stream": False,
        "temperature": 1, "top_p": 1, "top_k": 5, "stop_sequences": ["x"], "thinking": {"type": "disabled"},
        "metadata": {"user_id": "u"},
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "go"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "bash", "args": {}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c1", "name": "bash", "response": {"output": "o"}}}]},
        ],
        "systemInstruction": {"parts": [{"text": "s"}]}, "tools": [DECLARED],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {
            "temperature": 1, "topP": 1, "topK": 3, "maxOutputTokens": 9, "stopSequences": ["x"], "seed": 1,
            "candidateCount": 1, "responseLogprobs": True, "logprobs": 2,
            "thinkingConfig": {"thinkingBudget": 0, "includeThoughts": True},
        },
    },
}  # fmt: skip

Path = tuple[str | int, ...]


def fields(value: Any, at: Path = ()) -> Iterator[Path]:
    """The path of everything in `value`, but what is inside a schema."""
    if at:
        yield at
    if value == SCHEMA:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from fields(inner, (*at, key))


def changed(body: dict[str, Any], at: Path, value: Any) -> dict[str, Any]:
    """`body` with another value there, or none."""
    new = holder = copy.deepcopy(body)
    for key in at[:-1]:
        holder = holder[key]  # type: ignore[index]  # of JSON
    if value is MISSING:
        del holder[at[-1]]  # type: ignore[arg-type]
    else:
        holder[at[-1]] = value  # type: ignore[index]
    return new


def names(message: str, at: Path) -> bool:
    """Whether a refusal names the field, or what it is in; Google's SDK writes its fields in either manner."""
    words = [key for key in at if isinstance(key, str)][-2:]
    return any(word in message or re.sub("([A-Z])", r"_\1", word).lower() in message for word in words)


@pytest.mark.parametrize("dialect", RICH)
def test_a_wrong_value_is_a_reply_or_names_its_field(served: Served, dialect: str) -> None:
    body = RICH[dialect]
    assert served.call(PATHS[dialect], body).response.status_code == 200
    wrong, refused = [], 0
    for at in fields(body):
        for value in WRONG:
            got = served.call(PATHS[dialect], changed(body, at, value))
            status, text = got.response.status_code, got.response.text
            refused += status == 400
            if status not in (200, 400, 403, 404) or (status == 400 and not names(text, at)):
                wrong.append((at, value, status, text))
    assert wrong == []
    assert refused > 100


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("raw", NO_REQUEST)
def test_what_is_no_request_is_the_dialects_400(served: Served, dialect: str, raw: bytes) -> None:
    reply = served.http.post(PATHS[dialect], content=raw, headers={"session-id": "malformed"})
    assert reply.status_code == 400
    error = json.loads(reply.text)["error"]
    kind = error["status"] if dialect == "gemini" else error["type"]
    assert kind == ("INVALID_ARGUMENT" if dialect == "gemini" else "invalid_request_error")
    assert re.search(r"JSON body|body|model|contents", error["message"])
    assert served.turns("malformed") == []
