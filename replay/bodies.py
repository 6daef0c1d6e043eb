"""Request bodies in pieces, so that history sent again costs nothing.

A harness re-sends its whole conversation with every call. A body is split three ways:

* items: the conversation (`messages`, `input` or `contents`), each item a blob. A turn keeps their digests,
  those that its parent's request has too as runs `[start, count]` of the parent's list. Appending costs one
  run and the new digests, and so does a harness that rewrites its first message with every call.
* large fields (a system prompt, tools): each a blob, or a blob an item for lists that harnesses vary in
  part.
* the skeleton: the rest, a blob too, most often the same one through a whole session. It is a JSON list of
  `[key, kind, value]` in the body's order; kind is `value` (inline), `blob` (a digest), `list` (digests of
  the items) or `items` (the conversation).

`join` gives back the body, value for value and in the order sent, but for redacted credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay import codec, redact

ITEM_KEYS = ("messages", "input", "contents")
_INLINE = 256
"""Bytes of JSON up to which a field stays in the skeleton."""

Run = list[int]
"""[start, count] into the parent's items."""


@dataclass(frozen=True, slots=True)
class Split:
    """A body in pieces."""

    skeleton: str
    """Digest."""
    items: tuple[str, ...]
    """Digests of the conversation's items."""
    blobs: Mapping[str, bytes]
    """Everything by digest: JSON texts, uncompressed."""


def split(request: Mapping[str, Any]) -> Split:
    """Take a body apart; credentials in fields outside the conversation are redacted."""
    blobs: dict[str, bytes] = {}

    def store(text: bytes) -> str:
        key = codec.digest(text)
        blobs[key] = text
        return key

    items_key = next((key for key in ITEM_KEYS if isinstance(request.get(key), list)), None)
    rest = redact.fields({key: value for key, value in request.items() if key != items_key})
    items: tuple[str, ...] = ()
    skeleton: list[list[Any]] = []
    for key in request:
        if key == items_key:
            items = tuple(store(codec.dumps(item)) for item in request[key])
            skeleton.append([key, "items", None])
            continue
        text = codec.dumps(rest[key])
        if len(text) <= _INLINE:
            skeleton.append([key, "value", rest[key]])
        elif isinstance(rest[key], list) and key != "tools":
            skeleton.append([key, "list", [store(codec.dumps(item)) for item in rest[key]]])
        else:
            skeleton.append([key, "blob", store(text)])
    return Split(skeleton=store(codec.dumps(skeleton)), items=items, blobs=blobs)


def join(skeleton: list[list[Any]], items: Sequence[str], load: Callable[[Sequence[str]], list[Any]]) -> dict[str, Any]:
    """Put a body together again. `load` gives the values of digests, in order."""
    body: dict[str, Any] = {}
    for key, kind, value in skeleton:
        match kind:
            case "value":
                body[key] = value
            case "blob":
                [body[key]] = load([value])
            case "list":
                body[key] = load(value)
            case "items":
                body[key] = load(items)
            case _:
                raise ValueError(f"unknown kind {kind!r} in a request's skeleton")
    return body


def named(skeleton: list[list[Any]]) -> Iterator[str]:
    """The digests of the blobs that a skeleton names."""
    for _, kind, value in skeleton:
        if kind == "blob":
            yield value
        elif kind == "list":
            yield from value


def encode_items(items: Sequence[str], parent: Sequence[str]) -> list[str | Run]:
    """`items` as digests and runs of `parent`."""
    at = {key: index for index, key in reversed(list(enumerate(parent)))}  # first occurrence
    encoded: list[str | Run] = []
    run: Run | None = None
    for key in items:
        if run is not None and run[0] + run[1] < len(parent) and parent[run[0] + run[1]] == key:
            run[1] += 1
        elif key in at:
            run = [at[key], 1]
            encoded.append(run)
        else:
            run = None
            encoded.append(key)
    return encoded


def decode_items(encoded: Sequence[str | Run], parent: Sequence[str]) -> tuple[str, ...]:
    """Inverse of `encode_items`. Raises ValueError for a run that the parent does not have."""
    items: list[str] = []
    for entry in encoded:
        if isinstance(entry, str):
            items.append(entry)
            continue
        start, count = entry
        if not 0 <= start <= start + count <= len(parent):
            raise ValueError(f"run {entry} is not in a parent's {len(parent)} items")
        items.extend(parent[start : start + count])
    return tuple(items)
