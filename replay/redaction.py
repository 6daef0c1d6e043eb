"""A secret out of what is already recorded.

Texts are stored by their digests, so a text with the secret gives way to one without it, and every turn that named it
names the other. The token ids have the secret too. Where the model's tokenizer is given, the tokens it lies in become
others; without it all ids that are new in the turn do. Either way the turn, and all that continue it, are not trained
any more: what they say is no longer what the model saw.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, Connection, Text, delete, select, update
from sqlalchemy.types import TypeEngine
from tokenizers import Tokenizer

from replay import bodies, bundles, codec, operations, pruning
from replay.bundles import SESSION, TURN
from replay.redact import REDACTED
from replay.schema import Session, TurnMessage
from replay.store import Store
from replay.tokens import decode

BLANK = 0
"""The id in the place of one that had to go."""
UNTRAINABLE = "redacted"
_NAMES = frozenset({"name", "task", "group_name", "status", "purpose", "dialect", "drift_reason", "thread", "owner"})
"""Columns that are compared, or say what kind a row is."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """What was changed: texts, turns with other ids, and turns that are not trained any more."""

    texts: int
    turns: int
    untrainable: int


def redact(
    store: Store, sessions: Sequence[Session], pattern: re.Pattern[str], tokenizer: Tokenizer | None = None
) -> Redacted:
    """Put `[redacted]` in place of what `pattern` finds, in all that is recorded of `sessions`.

    Raises InUse, as `pruning.prune`.
    """
    pruning.check_unused(store)
    texts = turns = untrainable = 0
    with store.write() as connection:
        for session in sessions:
            one = _Session(connection, session, pattern, tokenizer)
            texts, turns, untrainable = texts + len(one.replaced), turns + one.apply(), untrainable + one.untrainable
        pruning.collect(connection)
    return Redacted(texts, turns, untrainable)


class _Session:
    """One session's redaction."""

    def __init__(
        self, connection: Connection, session: Session, pattern: re.Pattern[str], tokenizer: Tokenizer | None
    ) -> None:
        self._connection = connection
        self._session = session
        self._pattern = pattern
        self._tokenizer = tokenizer
        query = select(TURN).where(TURN.c.session_id == session.id).order_by(TURN.c.id)
        self._turns = [dict(row._mapping) for row in connection.execute(query)]
        blobs = bundles.blobs_of(connection, self._turns)
        self.replaced = self._replace(blobs)
        self._blobs = {**blobs, **{codec.digest(text): text for text in self.replaced.values()}}
        self._to = {old: codec.digest(text) for old, text in self.replaced.items()}
        self.untrainable = 0

    def apply(self) -> int:
        """Rewrite the rows; how many turns had the secret in their ids."""
        connection = self._connection
        changed = {codec.digest(text): text for text in self.replaced.values()}
        operations.store_blobs(connection, operations.blob_rows(changed))
        items: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        tainted: set[int] = set()
        ids = 0
        for turn in self._turns:
            values = self._columns(TURN, turn)
            values |= self._digests(turn, items)
            tokens = self._tokens(turn) if self._touches(turn) else {}
            ids += bool(tokens)
            if tokens or turn["parent_id"] in tainted:
                tainted.add(turn["id"])
                tokens["untrainable"] = turn["untrainable"] or UNTRAINABLE
                self.untrainable += turn["untrainable"] is None
            if changes := {name: value for name, value in {**values, **tokens}.items() if value != turn[name]}:
                connection.execute(update(TURN).where(TURN.c.id == turn["id"]).values(changes))
                self._reindex({**turn, **changes})
        [row] = connection.execute(select(SESSION).where(SESSION.c.id == self._session.id)).all()
        if changes := self._columns(SESSION, dict(row._mapping)):
            connection.execute(update(SESSION).where(SESSION.c.id == self._session.id).values(changes))
        return ids

    def _replace(self, blobs: Mapping[str, bytes]) -> dict[str, bytes]:
        """The texts that change, by their old digests. A skeleton changes with the texts it names."""
        found: dict[str, bytes] = {}
        skeletons = {turn["skeleton"] for turn in self._turns}
        pictures = {digest for turn in self._turns for digest in bundles.images(turn)}
        for digest in sorted(blobs.keys() - pictures, key=lambda key: key in skeletons):
            value = codec.loads(blobs[digest])
            if digest in skeletons:
                value = _renamed(value, {old: codec.digest(text) for old, text in found.items()})
            text = codec.dumps(self._clean(value))
            if text != blobs[digest]:
                found[digest] = text
        return found

    def _clean(self, value: Any) -> Any:
        """`value` with every text in it redacted; tool arguments are one text, in which JSON stands."""
        if isinstance(value, str):
            return self._pattern.sub(REDACTED, value)
        if isinstance(value, dict):
            return {self._clean(key): self._clean(child) for key, child in value.items()}
        if isinstance(value, list):
            return [self._clean(child) for child in value]
        return value

    def _columns(self, table: Any, row: Mapping[str, Any]) -> dict[str, Any]:
        """The text and JSON columns that change, but for digests."""
        changes = {}
        for column in table.columns:
            if not _is_text(column.type) or column.name in _NAMES or column.name in ("messages", "request_items"):
                continue
            if (new := self._clean(row[column.name])) != row[column.name]:
                changes[column.name] = new
        return changes

    def _digests(
        self, turn: Mapping[str, Any], items: dict[int, tuple[tuple[str, ...], tuple[str, ...]]]
    ) -> dict[str, Any]:
        """The columns that name texts. `items` has each turn's request items before and after."""
        was, now = items.get(turn["parent_id"], ((), ()))
        old = bodies.decode_items(turn["request_items"], was)
        new = tuple(self._to.get(digest, digest) for digest in old)
        items[turn["id"]] = old, new
        named = {name: self._to.get(turn[name], turn[name]) for name in bundles.BLOBS}
        messages = [self._to.get(digest, digest) for digest in turn["messages"]]
        encoded = bodies.encode_items(new, now) if self._to else turn["request_items"]
        return {**named, "messages": messages, "request_items": encoded}

    def _touches(self, turn: Mapping[str, Any]) -> bool:
        """Whether the ids that are new in a turn have what is redacted."""
        return any(digest in self._to for digest in [*turn["messages"], turn["reply"], turn["tools"]])

    def _tokens(self, turn: Mapping[str, Any]) -> dict[str, Any]:
        """The ids without the secret."""
        columns = {"prompt_suffix": turn["prompt_suffix"], "sampled": turn["sampled"]}
        return {name: self._blanked(ids) for name, ids in columns.items() if ids}

    def _blanked(self, ids: Sequence[int]) -> list[int]:
        if self._tokenizer is None:
            return [BLANK] * len(ids)
        ends: list[int] = []
        text = ""
        for piece in decode(ids, self._tokenizer):
            text += piece
            ends.append(len(text))
        spans = [found.span() for found in self._pattern.finditer(text)]
        starts = [0, *ends[:-1]]
        return [
            BLANK if any(start < last and first < end for first, last in spans) else number
            for number, start, end in zip(ids, starts, ends, strict=True)
        ]

    def _reindex(self, turn: Mapping[str, Any]) -> None:
        connection = self._connection
        connection.execute(delete(TurnMessage).where(TurnMessage.turn_id == turn["id"]))
        bundles.index(connection, [(turn["id"], turn)], self._blobs)


def _renamed(skeleton: list[list[Any]], to: Mapping[str, str]) -> list[list[Any]]:
    out = []
    for key, kind, value in skeleton:
        if kind == "blob":
            value = to.get(value, value)
        elif kind == "list":
            value = [to.get(one, one) for one in value]
        out.append([key, kind, value])
    return out


def _is_text(kind: TypeEngine[Any]) -> bool:
    return isinstance(kind, Text | JSON)
