"""Every row of the table of providers, called as its clients do: by its host, at its path, in its dialect."""

from __future__ import annotations

from typing import Any

import pytest

from addons.provider_table import OPERATIONS, PROVIDERS
from tests.addons.dialects.served import Served

MUST_BE_THERE = {
    "api.openai.com": {"chat", "responses"},
    "chatgpt.com": {"responses"},
    "api.anthropic.com": {"messages"},
    "generativelanguage.googleapis.com": {"gemini"},
    "us-central1-aiplatform.googleapis.com": {"gemini", "messages"},
    "any.openai.azure.com": {"chat", "responses"},
    "openrouter.ai": {"chat", "responses", "messages"},
    "api.mistral.ai": {"chat"},
    "dashscope.aliyuncs.com": {"chat"},
    "api.moonshot.ai": {"chat", "messages"},
    "api.x.ai": {"chat", "responses"},
    "api.deepseek.com": {"chat", "messages"},
    "api.groq.com": {"chat", "responses"},
}
BODIES: dict[str, Any] = {
    "chat": {"messages": [{"role": "user", "content": "go"}]},
    "responses": {"model": "m", "input": "go"},
    "messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "go"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "go"}]}]},
}
_NAMES = ("model", "deployment", "version", "project", "location")


def routes() -> list[tuple[str, str, str]]:
    """(host, path, dialect) of every model call that some provider takes by POST."""
    found: list[tuple[str, str, str]] = []
    for provider in PROVIDERS:
        for mount in provider.mounts:
            for style in mount.styles:
                for operation in OPERATIONS[style]:
                    if (operation.method, operation.kind) != ("POST", "model"):
                        continue
                    path = (mount.base or "") + operation.path
                    for name in _NAMES:
                        path = path.replace(f"{{{name}}}", f"some-{name}")
                    found += [(host.replace("*", "any"), path, operation.dialect) for host in provider.hosts[:1]]
    return found


ROUTES = routes()


@pytest.mark.parametrize(("host", "path", "dialect"), ROUTES, ids=[f"{host}{path}" for host, path, _ in ROUTES])
def test_a_call_is_answered_in_the_providers_dialect(served: Served, host: str, path: str, dialect: str) -> None:
    names_model = "some-model" in path or "some-deployment" in path
    body = {**BODIES[dialect], **({} if names_model or dialect == "gemini" else {"model": "m"})}
    got = served.call(path, body, host=host)
    assert (got.turn.dialect, got.turn.model) == (
        dialect, next((name for name in ("some-model", "some-deployment") if name in path), "m"),
    )  # fmt: skip
    assert b"ok" in got.response.content


@pytest.mark.parametrize("host", MUST_BE_THERE)
def test_the_providers_that_harnesses_use_are_there(host: str) -> None:
    regional = {"us-central1-aiplatform.googleapis.com": "aiplatform.googleapis.com"}
    assert {dialect for h, _, dialect in ROUTES if h == regional.get(host, host)} >= MUST_BE_THERE[host]
