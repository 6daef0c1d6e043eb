"""Replies read by `renderers`, for the model families that it knows and no response template describes.

Its parsers take the whole reply, so nothing is said before the end: right, but not streamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from renderers import Renderer, ToolCallParseStatus

from addons.parsers.events import Event, Reasoning, Text, called


class HeldParser:
    """A `Parser` that reads the reply when it is over."""

    def __init__(self, renderer: Renderer, prompt: Sequence[int], tools: Sequence[dict[str, Any]]) -> None:
        self._renderer = renderer
        self._prompt = list(prompt)
        self._tools = list(tools)
        self._ids: list[int] = []
        self._texts: list[str] = []

    def feed(self, number: int, text: str) -> list[Event]:
        """See `Parser`; holds everything."""
        self._ids.append(number)
        self._texts.append(text)
        return []

    def finish(self, stop: str) -> list[Event]:
        """See `Parser`."""
        try:
            reply = self._renderer.parse_response(self._ids, tools=self._tools or None, prompt_ids=self._prompt)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            return [Text("".join(self._texts), malformed=True)]
        events: list[Event] = [Reasoning(reply.reasoning_content or "")]
        if not self._tools and reply.tool_calls:
            # No tools were offered, so there is nothing to call: what was said after the reasoning is text.
            first = min(call.token_span[0] if call.token_span else 0 for call in reply.tool_calls)
            return [*events, Text(reply.content), Text("".join(self._texts[first:]))]
        events.append(Text(reply.content))
        for call in reply.tool_calls:
            good = called({"name": call.name, "arguments": call.arguments})
            if call.status == ToolCallParseStatus.OK and good is not None:
                events.append(good)
            else:
                span = slice(*call.token_span) if call.token_span else None
                events.append(Text("".join(self._texts[span]) if span else call.raw, malformed=True))
        return events

    def reasoning(self) -> bool:
        """See `Parser`; not known before the end."""
        return False
