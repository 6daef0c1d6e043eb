"""What broke other proxies of this kind: limits, listings and housekeeping, by the number of the case."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.addons.dialects.asking import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
)
from tests.addons.dialects.served import Served
from tests.addons.dialects.speakers import SPEAKERS, Ask

_LONG = "word " * 900
_LIMITS = [
    (CHAT, {"model": "m", "messages": [{"role": "user", "content": _LONG}], "max_completion_tokens": 32000}, 32000),
    (CHAT, {"model": "m", "messages": [{"role": "user", "content": _LONG}], "max_tokens": 32000}, 32000),
    (CHAT, {"model": "m", "messages": [{"role": "user", "content": _LONG}]}, None),
    (MESSAGES, {"model": "m", "messages": [{"role": "user", "content": _LONG}], "max_tokens": 32000}, 32000),
    (RESPONSES, {"model": "m", "input": _LONG, "max_output_tokens": 32000}, 32000),
    (GEMINI, {"contents": [{"parts": [{"text": _LONG}]}], "generationConfig": {"maxOutputTokens": 32000}}, 32000),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "asked"), _LIMITS)
def test_case_20_the_limit_is_clamped_to_the_window(served: Served, path: str, body: Any, asked: int | None) -> None:
    got = served.call(path, body)
    room = served.engine.window - len(got.sent["prompt"])
    assert room < 32000
    assert got.sent["max_tokens"] == room
    assert got.turn.sampling_asked.get("max_tokens") == asked
    assert got.turn.sampling_sent["max_tokens"] == room


_HOSTS = {
    "api.openai.com": "/v1/models",
    "chatgpt.com": "/backend-api/codex/models",
    "api.anthropic.com": "/v1/models",
    "generativelanguage.googleapis.com": "/v1beta/models",
    "openrouter.ai": "/api/v1/models",
}


@pytest.mark.parametrize(("host", "path"), _HOSTS.items(), ids=list(_HOSTS))
def test_case_40_models_are_listed_in_each_providers_shape(served: Served, host: str, path: str) -> None:
    listed = served.get(path, host).json()
    window = served.engine.window
    shapes: dict[str, Any] = {
        "api.openai.com": lambda: [m["id"] for m in listed["data"]] if listed["object"] == "list" else None,
        "openrouter.ai": lambda: [m["id"] for m in listed["data"]],
        "chatgpt.com": lambda: listed["models"] or ["scripted"],  # Codex keeps its own
        "api.anthropic.com": lambda: [m["id"] for m in listed["data"] if m["max_input_tokens"] == window],
        "generativelanguage.googleapis.com": lambda: [
            m["name"].removeprefix("models/") for m in listed["models"] if m["inputTokenLimit"] == window],
    }  # fmt: skip
    assert shapes[host]() == ["scripted"]
    if host == "api.anthropic.com":
        assert listed["has_more"] is False


@pytest.mark.parametrize(
    ("method", "host", "path", "status"),
    [
        ("POST", "api.anthropic.com", "/api/event_logging/batch", 200),
        ("GET", "api.anthropic.com", "/api/claude_code/settings", 404),
        ("GET", "api.anthropic.com", "/mcp-registry/v0/servers", 404),
        ("POST", "statsig.anthropic.com", "/v1/rgstr", 200),
        ("POST", "ab.chatgpt.com", "/otlp/v1/metrics", 200),
        ("POST", "play.googleapis.com", "/log?format=json", 200),
        ("GET", "models.dev", "/api.json", 404),
    ],
)
def test_case_42_housekeeping_is_answered_here_and_is_no_turn(
    served: Served, method: str, host: str, path: str, status: int
) -> None:
    asked = len(served.engine.requests)
    headers = {"x-harnesstap-token": "t", "x-harnesstap-host": host, "session-id": "housekeeping"}
    response = served.http.request(method, path, headers=headers, content=b"" if method == "GET" else b"{}")
    assert (response.status_code, response.json()) == (status, {})
    assert served.turns("housekeeping") == []
    assert len(served.engine.requests) == asked


@pytest.mark.parametrize("dialect", SPEAKERS)
def test_case_35_compressed_bytes_that_do_not_say_so_are_refused(served: Served, dialect: str) -> None:
    speaker = SPEAKERS[dialect]
    raw = gzip.compress(json.dumps(speaker.body(Ask(), stream=False)).encode())
    headers = {"content-type": "application/json", "session-id": f"packed-{dialect}"}
    response = served.http.post(speaker.path(stream=False), content=raw, headers=headers)
    assert response.status_code == 400
    assert "could not parse the JSON body" in response.json()["error"]["message"]
    assert served.turns(f"packed-{dialect}") == []


@pytest.mark.parametrize(
    ("host", "path", "key", "name"),
    [
        ("api.openai.com", "/v1/models/gpt-5.2", "id", "gpt-5.2"),
        ("api.anthropic.com", "/v1/models/claude-opus-5", "id", "claude-opus-5"),
        ("generativelanguage.googleapis.com", "/v1beta/models/gemini-3-pro", "name", "models/gemini-3-pro"),
        ("openrouter.ai", "/api/v1/models/qwen/qwen3-coder", "id", "qwen/qwen3-coder"),
    ],
)
def test_case_40_a_single_model_has_the_name_it_was_asked_for(
    served: Served, host: str, path: str, key: str, name: str
) -> None:
    assert served.get(path, host).json()[key] == name
