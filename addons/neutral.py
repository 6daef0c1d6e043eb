"""Messages and tools as the record keeps them: plain JSON, only what there is."""

from __future__ import annotations

from typing import Any

from addons.conversation import Message, Tool, ToolCall
from addons.media import media_json


def message_from(stored: dict[str, Any]) -> Message:
    """A message as the store keeps it (see :func:`message_json`)."""
    calls = tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in stored.get("tool_calls", ()))
    return Message(
        stored["role"], stored.get("content", ""), stored.get("reasoning", ""), calls,
        stored.get("tool_call_id"), stored.get("name"),
    )  # fmt: skip


def message_json(message: Message) -> dict[str, Any]:
    """A message for the store: only what it has."""
    out: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        out["reasoning"] = message.reasoning
    if message.tool_calls:
        out["tool_calls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.tool_calls]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        out["name"] = message.name
    if message.media:
        out["media"] = [media_json(one) for one in message.media]
    return out


def tool_from(stored: dict[str, Any]) -> Tool:
    """A tool as the store keeps it (see :func:`tool_json`)."""
    return Tool(stored["name"], stored.get("description", ""), stored.get("parameters"))


def tool_json(tool: Tool) -> dict[str, Any]:
    """A tool for the store: only what it has."""
    out: dict[str, Any] = {"name": tool.name}
    if tool.description:
        out["description"] = tool.description
    if tool.parameters is not None:
        out["parameters"] = tool.parameters
    return out
