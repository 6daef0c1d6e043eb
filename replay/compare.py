"""Where two conversations first differ: the message, its field, the byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BEFORE, _AFTER = 24, 48
"""Characters shown around the first difference."""
_FIELDS = ("role", "content", "tool_call_id", "name", "reasoning")
Same = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference. `message` counts from 1; `byte` is the place in the field's UTF-8, from 0.

    `stored` and `now` are what the field has there, with a little before it; None where it has no such field.
    """

    message: int
    role: str
    field: str
    byte: int
    stored: str | None
    now: str | None

    def __str__(self) -> str:
        place = f"message {self.message} ({self.role}), {self.field}, byte {self.byte}"
        return f"{place}: stored {_shown(self.stored)}, now {_shown(self.now)}"


def first_difference(
    stored: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], same: Same = lambda one, other: one == other
) -> Difference | None:
    """Where two neutral conversations first differ; None where they do not. `same` says which messages are equal."""
    for number, (one, other) in enumerate(zip(stored, now, strict=False), 1):
        if not same(one, other):
            return _in_message(number, one, other)
    if len(stored) == len(now):
        return None
    number = min(len(stored), len(now)) + 1
    missing = stored[number - 1] if len(stored) > len(now) else None
    extra = now[number - 1] if missing is None else None
    role = str((missing or extra or {}).get("role", "?"))
    return Difference(
        message=number, role=role, field="message", byte=0,
        stored=None if missing is None else _excerpt(_text(missing), 0),
        now=None if extra is None else _excerpt(_text(extra), 0),
    )  # fmt: skip


def in_text(stored: str, now: str) -> tuple[int, str, str]:
    """The byte of `now` at which two texts first differ, and what both have there.

    White space counts only where they differ in nothing else.
    """
    old, new = _unlike(stored, now)
    return len(now[:new].encode("utf-8", "surrogatepass")), _excerpt(stored, old), _excerpt(now, new)


def _in_message(number: int, stored: Mapping[str, Any], now: Mapping[str, Any]) -> Difference:
    def found(field: str, old: Any, new: Any) -> Difference:
        place, was, has = in_text(str(old or ""), str(new or ""))
        return Difference(
            message=number, role=str(now.get("role", "?")), field=field, byte=place,
            stored=None if old is None else was, now=None if new is None else has,
        )  # fmt: skip

    calls = [list(message.get("tool_calls") or ()) for message in (stored, now)]
    for field in ("role", "content"):
        if _squeezed(stored.get(field)) != _squeezed(now.get(field)):
            return found(field, stored.get(field), now.get(field))
    for index, (one, other) in enumerate(zip(*calls, strict=False)):
        for field in ("name", "arguments"):
            if one[field] != other[field]:
                return found(f"tool_calls[{index}].{field}", one[field], other[field])
    if len(calls[0]) != len(calls[1]):
        index = min(map(len, calls))
        one, other = (f"{c[index]['name']} {c[index]['arguments']}" if len(c) > index else None for c in calls)
        return found(f"tool_calls[{index}]", one, other)
    field = next((name for name in _FIELDS if stored.get(name) != now.get(name)), "media")
    return found(field, stored.get(field), now.get(field))


def _unlike(stored: str, now: str) -> tuple[int, int]:
    """The places in both texts of the first difference that is not white space; of the first one if there is none."""
    old = new = 0
    while True:
        while old < len(stored) and stored[old].isspace():
            old += 1
        while new < len(now) and now[new].isspace():
            new += 1
        if old == len(stored) and new == len(now):
            break
        if old == len(stored) or new == len(now) or stored[old] != now[new]:
            return old, new
        old, new = old + 1, new + 1
    pairs = enumerate(zip(stored, now, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(stored), len(now)))
    return at, at


def _excerpt(text: str, at: int) -> str:
    start = max(at - _BEFORE, 0)
    end = at + _AFTER
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _text(message: Mapping[str, Any]) -> str:
    calls = "".join(f" → {call['name']} {call['arguments']}" for call in message.get("tool_calls") or ())
    return f"{message.get('content') or ''}{calls}"


def _squeezed(value: Any) -> str:
    return "".join(str(value or "").split())


def _shown(text: str | None) -> str:
    return "nothing" if text is None else repr(text)
