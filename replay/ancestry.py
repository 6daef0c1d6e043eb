"""What placing a call asks of the record: turns by what they left behind, their kin, and what led to one.

Every question is answered by an index, and by a bounded number of rows however many turns the session has; only
`past`, asked once of a turn that no cache knows, grows with the length of its own conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session as Transaction
from sqlalchemy.orm import aliased

from replay import codec
from replay.groups import chunks
from replay.schema import Blob, Turn
from replay.store import Store

FEW = 16
"""Turns that one question gives at most; the newest of them."""


class Ancestry:
    """Queries over a store; for one thread, as a Reader is."""

    def __init__(self, store: Store) -> None:
        self._engine = store.engine

    def after(self, digests: Sequence[str], session_id: int | None = None) -> list[Turn]:
        """Turns that left one of these conversations behind (`after_digest`), newest first."""
        found: list[Turn] = []
        for chunk in chunks(digests):
            here = [] if session_id is None else [Turn.session_id == session_id]
            found += self._turns(Turn.after_digest.in_(chunk), *here)
        return sorted(found, key=lambda turn: -turn.id)

    def children(self, turn_id: int) -> list[Turn]:
        """Turns that continue one, newest first."""
        return self._turns(Turn.parent_id == turn_id)

    def roots(self, session_id: int, opening: str | None = None) -> list[Turn]:
        """A session's roots, newest first; those that began in one way, when `opening` says which.

        Calls that failed before any token began nothing.
        """
        same = Turn.opening.is_not(None) if opening is None else Turn.opening == opening
        return self._turns(Turn.session_id == session_id, same, or_(Turn.status != "failed", Turn.n_sampled > 0))

    def summaries(self, session_id: int, limit: int) -> list[Turn]:
        """A session's newest turns that summarised a conversation, newest first.

        It looks through all turns of the session: ask once of a session, not once of a call.
        """
        return self._turns(Turn.session_id == session_id, Turn.purpose == "compaction", Turn.n_sampled > 0)[:limit]

    def has_turns(self, session_id: int) -> bool:
        """Whether the session called before."""
        with self._engine.connect() as connection:
            return connection.execute(select(Turn.id).where(Turn.session_id == session_id).limit(1)).first() is not None

    def undelivered(self, session_id: int, body_digest: str) -> int | None:
        """The newest turn of the same raw body whose reply did not arrive, unless a later one's did."""
        same = (Turn.session_id == session_id, Turn.body_digest == body_digest)
        query = select(Turn.id, Turn.delivered_at).where(*same).order_by(Turn.id.desc()).limit(1)
        with self._engine.connect() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None or row.delivered_at is not None else int(row.id)

    def past(self, turn: Turn) -> list[dict[str, Any] | None]:
        """The messages of a turn's conversation, from its root on; None in place of each reply."""
        line = select(Turn.id, Turn.parent_id, Turn.messages).where(Turn.id == turn.id).cte("line", recursive=True)
        up = aliased(Turn)
        line = line.union_all(select(up.id, up.parent_id, up.messages).join(line, up.id == line.c.parent_id))
        texts: dict[str, bytes] = {}
        with self._engine.connect() as connection:
            rows = connection.execute(select(line.c.messages).order_by(line.c.id)).scalars().all()
            for chunk in chunks(sorted({digest for row in rows for digest in row})):
                for blob in connection.execute(select(Blob.sha256, Blob.data).where(Blob.sha256.in_(chunk))):
                    texts[blob.sha256] = codec.decompress(blob.data)
        past: list[dict[str, Any] | None] = []
        for row in rows:
            past += [*([None] if past else []), *(codec.loads(texts[digest]) for digest in row)]
        return past

    def _turns(self, *where: ColumnElement[bool]) -> list[Turn]:
        with Transaction(self._engine) as transaction:
            return list(transaction.scalars(select(Turn).where(*where).order_by(Turn.id.desc()).limit(FEW)))
