"""Counts, routes that are no model calls, and errors: each in its provider's shape, and no turn where none was."""

from __future__ import annotations

import json

import pytest

from tests.addons.dialects.served import Served
from tests.addons.dialects.test_field_cases import ASKED, PATHS


@pytest.mark.parametrize(
    ("path", "dialect", "key"),
    [
        ("/v1/messages/count_tokens", "messages", "input_tokens"),
        ("/v1beta/models/g:countTokens", "gemini", "totalTokens"),
        ("/v1/responses/input_tokens", "responses", "input_tokens"),
    ],
)
def test_counts_are_exact_and_no_turns(served: Served, path: str, dialect: str, key: str) -> None:
    counted = served.post(path, ASKED[dialect], "counting")
    got = served.call(PATHS[dialect], ASKED[dialect])
    assert counted.json()[key] == got.turn.prompt_length
    assert served.turns("counting") == []


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/messages/batches", "/v1beta/models/g:embedContent"])
def test_what_is_no_model_route_is_no_turn(served: Served, path: str) -> None:
    assert served.post(path, {"model": "m"}, "elsewhere").status_code == 404
    assert served.turns("elsewhere") == []


_ERRORS = {  # OpenAI's type and code, Anthropic's type, Google's status
    401: ("invalid_request_error", "invalid_api_key", "authentication_error", "UNAUTHENTICATED"),
    404: ("invalid_request_error", None, "not_found_error", "NOT_FOUND"),
    429: ("requests", "rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED"),
    500: ("server_error", None, "api_error", "INTERNAL"),
}


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_the_engines_errors_keep_their_meaning(served: Served, dialect: str, status: int) -> None:
    got = served.call(PATHS[dialect], ASKED[dialect], status=status, headers={"retry-after": "7"})
    assert got.response.status_code == status
    error = got.said["error"]
    assert "scripted refusal" in error["message"]
    if dialect == "gemini":
        assert (error["code"], error["status"]) == (status, _ERRORS[status][3])
    elif dialect == "messages":
        assert (got.said["type"], error["type"]) == ("error", _ERRORS[status][2])
    else:
        assert (error["type"], error["code"], error["param"]) == (*_ERRORS[status][:2], None)
    assert got.response.headers["retry-after"] == "7"


_OVERFLOW = {
    "chat": "maximum context length is 32768 tokens",
    "responses": "exceeds the context window",
    "messages": "prompt is too long:",
    "gemini": "exceeds the maximum number of tokens allowed (32768).",
}


@pytest.mark.parametrize("dialect", PATHS)
def test_an_overflow_is_the_providers_own_400(served: Served, dialect: str) -> None:
    text = "word " * 33_000
    body = json.loads(json.dumps(ASKED[dialect]).replace('"go"', json.dumps(text)))
    assert _OVERFLOW[dialect] in served.call(PATHS[dialect], body).refused()
