"""A call that could not be read: text for the harness, whatever it speaks, and a flag in the record."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from replay.cli import app
from tests.addons.dialects.served import Served
from tests.addons.dialects.speakers.base import SCHEMA

USER: dict[str, Any] = {"role": "user", "content": "go"}
FUNCTION = {"name": "bash", "parameters": SCHEMA}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {"model": "m", "messages": [USER], "tools": [{"type": "function", "function": FUNCTION}]},
    ),
    "responses": ("/v1/responses", {"model": "m", "input": "go", "tools": [{"type": "function", **FUNCTION}]}),
    "messages": (
        "/v1/messages",
        {"model": "m", "max_tokens": 64, "messages": [USER], "tools": [{"name": "bash", "input_schema": SCHEMA}]},
    ),
    "gemini": (
        "/v1beta/models/gemini-x:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "go"}]}],
            "tools": [{"functionDeclarations": [FUNCTION]}],
        },
    ),
}
BROKEN = '<tool_call>{"name": "bash", "arguments": ["ls"]}</tool_call>'


@pytest.mark.parametrize("dialect", CALLS)
def test_the_record_says_that_a_call_was_told_as_text(served: Served, dialect: str) -> None:
    path, body = CALLS[dialect]
    answered = served.call(path, body, BROKEN)
    reply = served.reader.reply(answered.turn)
    assert reply is not None
    assert reply["malformed"] is True
    assert reply["content"] == BROKEN
    assert "tool_calls" not in reply
    good = served.call(path, body, '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>')
    assert "malformed" not in (served.reader.reply(good.turn) or {})


def test_replay_show_tells_it(served: Served) -> None:
    path, body = CALLS["chat"]
    answered = served.call(path, body, BROKEN)
    name = next(iter(served.reader.sessions(prefix=f"session-id.{answered.session}."))).name
    shown = CliRunner().invoke(app, ["show", "--store", str(served.rig.store.engine.url), name])
    assert "could not be read, and was told as text" in shown.output, shown.output
