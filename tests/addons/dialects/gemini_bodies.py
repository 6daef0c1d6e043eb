"""Pieces of Gemini requests."""

from __future__ import annotations

import base64
from typing import Any

from addons.conversation import Call, Message
from addons.dialects.gemini import read

HI = {"role": "user", "parts": [{"text": "hi"}]}
LS = {"name": "ls", "description": "d", "parameters": {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}}}
PNG = base64.b64encode(b"\x89PNG\xff\xfe\xfa").decode()


def call_of(*contents: Any, **more: Any) -> Call:
    return read({"contents": list(contents) or [HI], **more}, "gemini-x")


def messages_of(*contents: Any) -> tuple[Message, ...]:
    return call_of(*contents).conversation.messages


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def ask(name: str, args: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args or {}, **more}}


def answer(name: str, response: Any, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": response, **more}}
