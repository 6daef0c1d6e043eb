"""Pieces of Messages requests."""

from __future__ import annotations

from typing import Any

from addons.conversation import Message
from addons.dialects.messages import read

USER = {"role": "user", "content": "hi"}
BASH = {"name": "Bash", "description": "d", "input_schema": {"type": "object", "properties": {"command": {}}}}
LS = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 64, "messages": [USER], **more}


def messages(*items: dict[str, Any]) -> tuple[Message, ...]:
    return read(body(messages=list(items))).conversation.messages


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def result(content: Any = None, **more: Any) -> dict[str, Any]:
    found = {"type": "tool_result", "tool_use_id": "toolu_1", **more}
    return found if content is None else {**found, "content": content}
