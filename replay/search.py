"""Full-text search in what was said: messages, reasoning, and tool arguments.

The index knows each message once, however often it is sent: `message` numbers the messages, `turn_message` says which
turns brought them, and `message_search` holds their words. That table is FTS5's on SQLite and a `tsvector` on
PostgreSQL; both are given words that were cut here, so that a search finds the same on both. A word is a run of letters
and digits, without case; a character of Chinese, Japanese or Korean is a word of its own.

The recorder writes the index in the transaction that writes the turn. Of each message the first 256 KiB are indexed,
of each word the first 64 characters; on PostgreSQL a quoted phrase is found within a message's first 16,000 words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, TextClause, bindparam, text

from replay import codec
from replay.schema import Message, TurnMessage

TABLE = "message_search"
_LONGEST_TEXT = 1 << 18
_LONGEST_WORD = 64
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W_{_IDEOGRAPHS}]+")
_TERM = re.compile(r'"([^"]*)"(\*?)|(\S+)')

CREATE = {
    "sqlite": (
        f"CREATE VIRTUAL TABLE {TABLE} USING fts5(words, content='', tokenize=\"unicode61 remove_diacritics 0\")",
    ),
    "postgresql": (
        f"CREATE TABLE {TABLE} (rowid BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
        f"CREATE INDEX ix_{TABLE}_words ON {TABLE} USING gin (words)",
    ),
}
"""How a migration makes the table, by database."""


def words(message: Mapping[str, Any]) -> str:
    """The words of a neutral message, in order, with a space between two of them."""
    said = "\n".join(_texts(message))[:_LONGEST_TEXT]
    return " ".join(_words(said))


def store(connection: Connection, texts: Mapping[str, str]) -> None:
    """Index the messages that are not indexed yet: their words, by digest."""
    dialect = connection.dialect.name
    for digest, said in sorted(texts.items()):  # sorted, so that two recorders never wait for each other in a circle
        number = connection.execute(_NUMBER, {"sha256": bytes.fromhex(digest)}).scalar_one_or_none()
        if number is not None:
            connection.execute(_ADD[dialect], {"id": number, "words": _indexed(dialect, said)})


def link(connection: Connection, turn_id: int, digests: Sequence[str]) -> None:
    """Note which messages, all of them stored, a turn brought."""
    if digests:
        connection.execute(_LINK, [{"turn_id": turn_id, "sha256": bytes.fromhex(digest)} for digest in digests])


def forget(connection: Connection, number: int, message: Mapping[str, Any]) -> None:
    """Take a message out of `message_search`. FTS5 needs its words again for that."""
    if connection.dialect.name == "sqlite":
        drop = f"INSERT INTO {TABLE} ({TABLE}, rowid, words) VALUES ('delete', :id, :words)"
        connection.execute(text(drop), {"id": number, "words": words(message)})
    else:
        connection.execute(text(f"DELETE FROM {TABLE} WHERE rowid = :id"), {"id": number})


def matching(dialect: str, query: str) -> ColumnElement[bool]:
    """A condition on `TurnMessage.message_id`: the message has all that `query` names.

    `query` is words, and phrases in double quotes; a `*` behind either takes every word that begins so.
    Raises ValueError when it names no word.
    """
    terms = _terms(query)
    if not terms:
        raise ValueError(f"nothing to search for in {query!r}: give words of letters or digits")
    if dialect == "sqlite":
        condition = f"SELECT rowid FROM {TABLE} WHERE {TABLE} MATCH :query"
        asked = " AND ".join('"' + " ".join(term.words) + '"' + ("*" if term.open else "") for term in terms)
    else:
        condition = f"SELECT rowid FROM {TABLE} WHERE words @@ CAST(:query AS tsquery)"
        asked = " & ".join(f"({_tsquery(term)})" for term in terms)
    ids: TextClause = text(condition).bindparams(bindparam("query", asked))
    return TurnMessage.message_id.in_(ids.columns(Message.id))


@dataclass(frozen=True, slots=True)
class _Term:
    words: list[str]
    open: bool
    """Its last word is only a word's beginning."""


def _terms(query: str) -> list[_Term]:
    found = []
    for phrase, star, word in _TERM.findall(query):
        cut = _words(phrase or word)
        if cut:
            found.append(_Term(cut, bool(star) or word.endswith("*")))
    return found


def _tsquery(term: _Term) -> str:
    # A word is letters and digits alone, so quotes hold it.
    quoted = [f"'{word}'" for word in term.words]
    if term.open:
        quoted[-1] += ":*"
    return " <-> ".join(quoted)


def _words(said: str) -> list[str]:
    return [word[:_LONGEST_WORD] for word in _WORD.findall(said.lower())]


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    for name in ("content", "reasoning"):
        if isinstance(message.get(name), str):
            yield message[name]
    for call in message.get("tool_calls") or ():
        yield call["name"]
        try:
            yield from _strings(codec.loads(call["arguments"]))
        except ValueError:
            yield call["arguments"]


def _strings(value: Any) -> Iterator[str]:
    """The texts in a JSON value, keys too; iterative, since arguments may nest deep."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for key, child in reversed(item.items()):
                stack += [child, key]
        elif isinstance(item, list):
            stack += reversed(item)
        elif item is not None and not isinstance(item, bool):
            yield str(item)


def _indexed(dialect: str, said: str) -> str:
    if dialect == "sqlite":
        return said
    places: dict[str, list[int]] = {}
    for place, word in enumerate(said.split(), 1):
        places.setdefault(word, []).append(place)
    return " ".join(f"'{word}':{','.join(map(str, found[:255]))}" for word, found in places.items())


# Texts, since building them for each turn would cost more than running them.
_NUMBER = text("INSERT INTO message (sha256) VALUES (:sha256) ON CONFLICT (sha256) DO NOTHING RETURNING id")
_LINK = text(
    "INSERT INTO turn_message (turn_id, message_id) SELECT :turn_id, id FROM message WHERE sha256 = :sha256 "
    "ON CONFLICT (turn_id, message_id) DO NOTHING"
)
_ADD = {
    "sqlite": text(f"INSERT INTO {TABLE} (rowid, words) VALUES (:id, :words)"),
    "postgresql": text(f"INSERT INTO {TABLE} (rowid, words) VALUES (:id, CAST(:words AS tsvector))"),
}
