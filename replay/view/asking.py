"""What a page is asked for, and what it answers with: plain values, so that pages are plain functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from replay.reader import Reader
from replay.schema import Session, Turn

_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)  # more would be no database's integer

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: the names in its path, and its query."""

    reader: Reader
    tokenizer: Tokenizer | None
    path: Mapping[str, str]
    query: Mapping[str, str]

    def session(self) -> Session:
        """The session that the path names by its id. Raises LookupError."""
        return self.reader.session(self.reader.session_name(self.number("session")))

    def turn(self) -> tuple[Session, list[Turn], int]:
        """The session, its turns and the number (1-based) of the one that the path names. Raises LookupError."""
        session = self.session()
        turns = self.reader.turns(session)
        number = self.number("turn")
        if not 1 <= number <= len(turns):
            raise LookupError(f"session {session.name!r} has {len(turns)} turns, no turn {number}")
        return session, turns, number

    def number(self, name: str) -> int:
        """A whole number in the path; the routes let nothing else through."""
        return int(self.path[name])

    def text(self, name: str) -> str | None:
        """A field of the query; None where it is empty or not there. Raises ValueError for what no text can be."""
        given = self.query.get(name, "").strip()
        if _NO_TEXT.search(given):
            raise ValueError(f"{name}: {given!r} is not valid Unicode without NUL")
        return given or None

    def whole(self, name: str) -> int | None:
        """A whole number in the query. Raises ValueError."""
        given = self.text(name)
        if given is not None and not _WHOLE.fullmatch(given):
            raise ValueError(f"{name}: {given!r} is not a whole number")
        return None if given is None else int(given)

    def real(self, name: str) -> float | None:
        """A number in the query. Raises ValueError."""
        given = self.text(name)
        try:
            return None if given is None else float(given)
        except ValueError as error:
            raise ValueError(f"{name}: {given!r} is not a number") from error

    def one_of(self, name: str, allowed: tuple[str, ...]) -> Any:
        """A word of the query, of those `allowed`. Raises ValueError."""
        given = self.text(name)
        if given is not None and given not in allowed:
            raise ValueError(f"{name}: {given!r} is none of {', '.join(allowed)}")
        return given


@dataclass(frozen=True, slots=True)
class Page:
    """A template, and what it is given."""

    template: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moved:
    """Another page has it."""

    location: str


@dataclass(frozen=True, slots=True)
class File:
    """Bytes. Without `shown` a browser keeps them and does not show them."""

    body: bytes
    media_type: str
    name: str
    shown: bool = False


Answer = Page | Moved | File
