from __future__ import annotations

from typing import Any

import pytest

from replay import redact


@pytest.mark.parametrize(
    "name",
    ["api_key", "apiKey", "apikey", "x-api-key", "X-Goog-Api-Key", "ANTHROPIC_API_KEY", "authorization", "cookie",
     "Proxy-Authorization", "Set-Cookie", "access_token", "accessToken", "client_secret", "password"],
)  # fmt: skip
def test_credential_fields_are_redacted_at_any_depth(name: str) -> None:
    assert redact.fields({"a": [{name: "sk-123"}]}) == {"a": [{name: "[redacted]"}]}


@pytest.mark.parametrize(
    "value",
    [
        {"prompt_cache_key": "abc"},
        {"max_tokens": 5, "max_completion_tokens": 7, "token": "the", "key": "k"},
        {"properties": {"api_key": {"type": "string"}}, "required": ["api_key"]},
        {"api_key": None, "password": "", "authorization": False},
        {"cookies_accepted": "yes", "authorization_endpoint": "https://x"},
    ],
)
def test_what_is_no_credential_stays(value: dict[str, Any]) -> None:
    assert redact.fields(value) == value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/v1beta/models/g:generate?alt=sse&key=AIzaSecret", "/v1beta/models/g:generate?alt=sse&key=[redacted]"),
        ("/v1?api_key=s&b=1", "/v1?api_key=[redacted]&b=1"),
        ("http://name:secret@127.0.0.1:8080/v1", "http://[redacted]@127.0.0.1:8080/v1"),
        ("/v1/messages?beta=true", "/v1/messages?beta=true"),
        ("/v1?monkey=banana", "/v1?monkey=banana"),
    ],
)
def test_urls(before: str, after: str) -> None:
    assert redact.url(before) == after


def test_texts_of_errors() -> None:
    error = {"message": "POST http://u:p@h/v1?key=AIza failed", "sent": ["Authorization: Bearer sk-abcdefgh"]}
    assert redact.everything(error) == {
        "message": "POST http://[redacted]@h/v1?key=[redacted] failed",
        "sent": ["Authorization: Bearer [redacted]"],
    }


def test_the_given_value_is_not_changed() -> None:
    value = {"nested": {"api_key": "sk"}}
    redact.fields(value)
    assert value == {"nested": {"api_key": "sk"}}
