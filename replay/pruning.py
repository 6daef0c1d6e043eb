"""Sessions out of the record, and texts that nobody names any more with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, select

from replay import bodies, bundles, codec, owners, search
from replay.schema import BatchRow, Blob, Message, Session, Turn
from replay.store import Store


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed: sessions, their turns, texts, and the bytes (compressed) that these had."""

    sessions: int
    turns: int
    blobs: int
    bytes: int


class InUse(ValueError):
    """A process writes to the record."""


def trained_on(store: Store, sessions: Sequence[Session]) -> list[Session]:
    """Those of `sessions` that a training batch was made of."""
    used = select(Turn.session_id).join(BatchRow, BatchRow.turn_id == Turn.id).distinct()
    with store.engine.connect() as connection:
        ids = set(connection.execute(used).scalars())
    return [session for session in sessions if session.id in ids]


def prune(store: Store, sessions: Sequence[Session]) -> Pruned:
    """Remove sessions, with their turns and rows of training batches, and the texts that only they had.

    Raises InUse while a proxy or a trainer has turns of its own in this record: it takes texts that it wrote once to be
    there for good.
    """
    check_unused(store)
    with store.write() as connection:
        turns = 0
        for session in sessions:
            gone = Turn.session_id == session.id
            turns += connection.execute(select(func.count()).where(gone)).scalar_one()
            connection.execute(delete(Turn).where(gone))
            connection.execute(delete(Session).where(Session.id == session.id))
        blobs, size = collect(connection)
    return Pruned(len(sessions), turns, blobs, size)


def compact(store: Store) -> None:
    """Give the space that was freed back to the system (SQLite; PostgreSQL does it by itself)."""
    if store.engine.dialect.name == "sqlite":
        with store.engine.connect() as connection:
            connection.connection.driver_connection.execute("VACUUM")  # type: ignore[union-attr]


def check_unused(store: Store) -> None:
    """Raise InUse where a process that opened turns here still lives."""
    with store.engine.connect() as connection:
        names = connection.execute(select(Turn.owner).where(Turn.owner.is_not(None)).distinct()).scalars().all()
    if any(name is not None and not owners.is_gone(store, name) for name in names):
        raise InUse("a proxy is writing to this record: stop it first")


def collect(connection: Connection) -> tuple[int, int]:
    """Remove the texts that no turn names; how many they were, and their bytes."""
    kept: set[str] = set()
    skeletons: set[str] = set()
    columns = [bundles.TURN.c[name] for name in ("messages", "request_items", "images", *bundles.BLOBS)]
    for row in connection.execute(select(*columns).execution_options(yield_per=1000)):
        kept |= set(bundles.named(dict(row._mapping)))
        skeletons.add(row.skeleton)
    for start in range(0, len(known := sorted(skeletons)), 500):
        texts = bundles.load(connection, known[start : start + 500])
        kept |= {digest for text in texts.values() for digest in bodies.named(codec.loads(text))}
    unnamed = [digest for digest in connection.execute(select(Blob.sha256)).scalars() if digest not in kept]
    size = 0
    for start in range(0, len(unnamed), 500):
        part = unnamed[start : start + 500]
        size += connection.execute(select(func.sum(func.length(Blob.data))).where(Blob.sha256.in_(part))).scalar_one()
        texts = bundles.load(connection, part)
        for number, digest in connection.execute(select(Message.id, Message.sha256).where(Message.sha256.in_(part))):
            search.forget(connection, number, codec.loads(texts[digest]))
        connection.execute(delete(Message).where(Message.sha256.in_(part)))
        connection.execute(delete(Blob).where(Blob.sha256.in_(part)))
    return len(unnamed), int(size)
