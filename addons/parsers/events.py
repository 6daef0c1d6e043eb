"""What a parser of replies says, and the one interface all of them have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """More visible text. `malformed` when it is a tool call that did not parse, markup and all."""

    text: str
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class Called:
    """A complete tool call. `arguments` is the JSON text of an object."""

    name: str
    arguments: str


Event = Reasoning | Text | Called


class Parser(Protocol):
    """Reads one reply. Never raises on what a model says."""

    def feed(self, number: int, text: str) -> list[Event]:
        """One more id, and the text that it completes."""
        ...

    def finish(self, stop: str) -> list[Event]:
        """The reply is over. `stop` is the text of the stop token that ended it, or ""."""
        ...

    def reasoning(self) -> bool:
        """Whether the reply is inside its reasoning now."""
        ...


def called(value: Any) -> Called | None:
    """A parsed `{"name": ..., "arguments": {...}}` as a call, or None when it cannot be run as it is."""
    if not isinstance(value, dict):
        return None
    name, arguments = value.get("name"), value.get("arguments")
    if isinstance(arguments, str):
        # Some models write the arguments as JSON inside a JSON string.
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(name, str) or not name.strip() or not isinstance(arguments, dict):
        return None
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return None  # NaN and infinities, which Python reads, are no JSON
    if not _is_unicode(name):
        return None
    return Called(name, text if _is_unicode(text) else json.dumps(arguments))


def merged(events: Sequence[Event]) -> list[Event]:
    """Neighbours of one kind joined, empty ones left out."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Called):
            out.append(event)
        elif not event.text:
            continue
        elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
            out[-1] = Reasoning(last.text + event.text)
        elif isinstance(event, Text) and isinstance(last, Text) and last.malformed == event.malformed:
            out[-1] = Text(last.text + event.text, event.malformed)
        else:
            out.append(event)
    return out


def _is_unicode(text: str) -> bool:
    """False with a lone surrogate (JSON's "\\ud800"), which no wire format can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
