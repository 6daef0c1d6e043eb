"""Whole requests of each dialect, and what to look at in what came of them."""

from __future__ import annotations

import json
from typing import Any

from tests.addons.dialects.served import Answered, Served
from tests.addons.dialects.speakers.base import SCHEMA

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
GEMINI = "/v1beta/models/gemini-x:generateContent"
USER: dict[str, Any] = {"role": "user", "content": "go"}


USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}]}


DECLARED = [{"functionDeclarations": [{"name": n, "parametersJsonSchema": SCHEMA} for n in ("bash", "look", "x")]}]


def messages(*more: Any, **fields: Any) -> dict[str, Any]:
    """A Messages body."""
    return {"model": "m", "max_tokens": 64, "messages": [USER, *more], **fields}


def tool(name: str = "bash", schema: Any = None) -> dict[str, Any]:
    """A tool of Messages'."""
    return {"name": name, "input_schema": SCHEMA if schema is None else schema}


def function(name: str = "bash", schema: Any = None) -> dict[str, Any]:
    """A tool of Chat's."""
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA if schema is None else schema}}


def in_order(prompt: str, *texts: str) -> None:
    """Each text is in the prompt once, in this order."""
    assert [prompt.count(text) for text in texts] == [1] * len(texts), prompt
    places = [prompt.index(text) for text in texts]
    assert places == sorted(places)


def continues(served: Served, got: Answered) -> None:
    """The last turn of the session goes on from the tokens of the one before."""
    before, after = got.turns
    kept = served.reader.prompt_ids(before) + served.reader.sampled(before)[0]
    assert (after.parent_id, after.drift_reason) == (before.id, None)
    assert served.reader.prompt_ids(after)[: len(kept)] == kept


def grammar(got: Answered) -> Any:
    """The structural tag that the engine was sent; None for a free model."""
    constraint = got.sent.get("structured_outputs")
    return None if constraint is None else json.loads(constraint["structural_tag"])["format"]
