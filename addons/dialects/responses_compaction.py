"""Compaction: a Responses call whose reply is a summary that will stand for the conversation.

A harness asks for it at a route of its own (`/responses/compact`), or by a `compaction_trigger` at the end of an
ordinary call's input, as Codex does. The model is asked in plain words; what it writes comes back as one `compaction`
item, sealed, and is a user message when the harness sends that item in place of the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from addons.dialects.responses_parts import seal

TRIGGER = "compaction_trigger"
REQUEST = (
    "The conversation is about to be replaced by a summary, and you will go on from the summary alone. Write it now, "
    "and call no tools. Say what was asked for, what has been done and found out so far, which files, commands and "
    "decisions matter, and what remains to be done."
)
"""What the model is told. The provider has words of its own, which nobody sees."""
_PREFACE = "Summary of the conversation so far, which it replaces:\n\n"


def compaction_item(item: str, text: str) -> dict[str, Any]:
    """The one output item of a compaction."""
    return {"id": item, "type": "compaction", "encrypted_content": seal(_PREFACE + text)}


def retained(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The items that a compacted conversation keeps: what the user said, in parts."""
    return [_in_parts(item) for item in items if isinstance(item, dict) and item.get("role") == "user"]


def _in_parts(item: dict[str, Any]) -> dict[str, Any]:
    content = item.get("content")
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    return {"type": "message", **item, "content": parts}


def compacted(reply: dict[str, Any], kept: Sequence[Any]) -> dict[str, Any]:
    """The reply of `/responses/compact`, made of the Response object that a call would have had."""
    return {
        "id": reply["id"],
        "object": "response.compaction",
        "created_at": reply["created_at"],
        "output": [*kept, *(item for item in reply["output"] if item["type"] == "compaction")],
        "usage": reply["usage"],
    }
