"""Bundles as lines of JSON: the project's own export, which loses nothing.

The first line says what it is; then, for each session, a line with its row, a line for each JSON text or image that was
not written before, and a line a turn. Token ids and logprobs are zstd of int32 and float32, in base64: exact, small.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from sqlalchemy import Table

from replay import codec
from replay.bundles import SESSION, TURN, Bundle, inside, named
from replay.columns import Logprobs, TokenIds

FORMAT, VERSION = "harnesstap", 1
_PACKED = (TokenIds, Logprobs)


def lines(bundles: Iterable[Bundle]) -> Iterator[bytes]:
    """The lines, without their ends."""
    yield codec.dumps({"type": "header", "format": FORMAT, "version": VERSION})
    written: set[str] = set()
    for bundle in bundles:
        yield codec.dumps({"type": "session", "row": _row(SESSION, bundle.session)})
        for digest, text in bundle.blobs.items():
            if digest not in written:
                written.add(digest)
                yield codec.dumps({"type": "blob", **_blob(text)})
        for turn in bundle.turns:
            yield codec.dumps({"type": "turn", "row": _row(TURN, turn)})
        yield codec.dumps({"type": "end"})


def read(source: Iterable[bytes]) -> Iterator[Bundle]:
    """The bundles of an export. Raises ValueError, naming the line, for what is none."""
    session: dict[str, Any] | None = None
    turns: list[dict[str, Any]] = []
    blobs: dict[str, bytes] = {}
    begun = False
    for number, line in enumerate(source, 1):
        try:
            item = codec.loads(line)
            kind = item["type"]
            if not begun:
                _check(item)
                begun = True
            elif kind == "session":
                session, turns = _values(SESSION, item["row"]), []
            elif kind == "blob":
                text = item["text"].encode() if "text" in item else base64.b64decode(item["base64"], validate=True)
                blobs[codec.digest(text)] = text
            elif kind == "turn":
                turns.append(_values(TURN, item["row"]))
            elif kind == "end" and session is not None:
                wanted = {digest for turn in turns for digest in named(turn)} | inside(turns, blobs)
                yield Bundle(session, turns, {digest: blobs[digest] for digest in wanted})
                session = None
            else:
                raise ValueError(f"a line of type {kind!r} is not expected here")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"line {number}: {error if isinstance(error, ValueError) else repr(error)}") from error
    if session is not None or not begun:
        raise ValueError("it ends in the middle of a session" if begun else "it is empty")


def _check(header: Mapping[str, Any]) -> None:
    if header.get("type") != "header" or header.get("format") != FORMAT:
        raise ValueError("this is no export of `replay export --format harnesstap`")
    if header["version"] != VERSION:
        raise ValueError(f"it was written by another harnesstap (version {header['version']}; ours is {VERSION})")


def _blob(data: bytes) -> dict[str, str]:
    """A JSON text as it is, and an image in base64."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _row(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    packed = {column.name for column in table.columns if isinstance(column.type, _PACKED)}
    return {name: _pack(table, name, value) if name in packed else value for name, value in row.items()}


def _values(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    known = {column.name for column in table.columns}
    if unknown := row.keys() - known:
        raise ValueError(f"this harnesstap knows no {table.name}.{min(unknown)}: it is older than the export")
    packed = {column.name for column in table.columns if isinstance(column.type, _PACKED)}
    return {name: _unpack(table, name, value) if name in packed else value for name, value in row.items()}


def _pack(table: Table, name: str, value: Any) -> str | None:
    if value is None:
        return None
    data = codec.pack_ids(value) if isinstance(table.c[name].type, TokenIds) else codec.pack_logprobs(value)
    return base64.b64encode(data).decode()


def _unpack(table: Table, name: str, value: str | None) -> Any:
    if value is None:
        return None
    data = base64.b64decode(value, validate=True)
    unpack = codec.unpack_ids if isinstance(table.c[name].type, TokenIds) else codec.unpack_logprobs
    return cast(Any, unpack)(data)
