"""Sessions as bundles: all their rows and blobs, to be put into another record with ids of its own.

Rows are taken column by column, so nothing that the schema comes to hold is left behind; ids are those of the source,
and are given anew where the bundle is put. Training batches stay where they are: they say what was trained there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Connection, Table, insert, select

from replay import bodies, codec, operations, search
from replay.reader import Reader
from replay.schema import Blob, Session, Turn
from replay.store import Store

SESSION, TURN = cast(Table, Session.__table__), cast(Table, Turn.__table__)
_OWN = frozenset({"id", "owner"})
"""What a row has only where it is."""
_RELATIVES = ("parent_id", "retry_of", "replays")
BLOBS = tuple(key.parent.name for key in TURN.foreign_keys if key.column.table.name == "blob")
"""The columns that name a blob."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A session's row, its turns' rows in order of arrival, and the JSON texts and images they name, by digest."""

    session: Mapping[str, Any]
    turns: Sequence[Mapping[str, Any]]
    blobs: Mapping[str, bytes]

    @property
    def name(self) -> str:
        """The session's."""
        return str(self.session["name"])


class NameTaken(ValueError):
    """The record has another session of that name."""


def take(reader: Reader, session: Session) -> Bundle:
    """A session of a record."""
    with reader.store.engine.connect() as connection:
        row = connection.execute(select(SESSION).where(SESSION.c.id == session.id)).one()
        query = select(TURN).where(TURN.c.session_id == session.id).order_by(TURN.c.id)
        turns = [dict(turn._mapping) for turn in connection.execute(query)]
        return Bundle(dict(row._mapping), turns, blobs_of(connection, turns))


def blobs_of(connection: Connection, turns: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """All that turns' rows name, by digest."""
    turns = list(turns)
    found = load(connection, {digest for turn in turns for digest in named(turn)})
    return found | load(connection, inside(turns, found) - found.keys())


def inside(turns: Iterable[Mapping[str, Any]], blobs: Mapping[str, bytes]) -> set[str]:
    """The digests in the skeletons of turns' requests."""
    skeletons = {turn["skeleton"] for turn in turns}
    return {digest for key in skeletons for digest in bodies.named(codec.loads(blobs[key]))}


def named(turn: Mapping[str, Any]) -> Iterator[str]:
    """The digests that a turn's row names; those of a skeleton's parts are in the skeleton."""
    yield from (turn[column] for column in BLOBS if turn[column] is not None)
    yield from turn["messages"]
    yield from (entry for entry in turn["request_items"] if isinstance(entry, str))
    yield from images(turn)


def images(turn: Mapping[str, Any]) -> set[str]:
    """The digests of the images that a turn's row names."""
    return {image["sha256"] for image in turn["images"] or ()}


def load(connection: Connection, digests: Iterable[str]) -> dict[str, bytes]:
    """Texts by digest. Raises LookupError for one that is not there."""
    wanted = sorted(set(digests))
    found: dict[str, bytes] = {}
    for start in range(0, len(wanted), 500):
        query = select(Blob.sha256, Blob.data).where(Blob.sha256.in_(wanted[start : start + 500]))
        found |= {row.sha256: codec.decompress(row.data) for row in connection.execute(query)}
    if missing := set(wanted) - found.keys():
        raise LookupError(f"the database lacks blob {min(missing)}")
    return found


class Putter:
    """Puts bundles into a record, one transaction each.

    Turns that one bundle names in another (`replays`) are found if that one came before.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids: dict[int, int] = {}

    def put(self, bundle: Bundle, *, rename: bool = False) -> str | None:
        """Put a bundle; the name its session has now, None where the record has that very session already.

        Raises:
            NameTaken: another session has its name, unless `rename` gives it the next free one (`NAME.2`).
        """
        with self._store.write() as connection:
            name = self._name(connection, bundle, rename=rename)
            if name is None:
                return None
            operations.store_blobs(connection, operations.blob_rows(bundle.blobs))
            values = {key: value for key, value in bundle.session.items() if key not in _OWN}
            added = insert(SESSION).values({**values, "name": name}).returning(SESSION.c.id)
            session_id = int(connection.execute(added).scalar_one())
            for turn in bundle.turns:
                self._ids[turn["id"]] = self._turn(connection, turn, session_id)
            index(connection, [(self._ids[turn["id"]], turn) for turn in bundle.turns], bundle.blobs)
        return name

    def _turn(self, connection: Connection, turn: Mapping[str, Any], session_id: int) -> int:
        values = {key: value for key, value in turn.items() if key not in _OWN}
        related = {key: self._ids.get(turn[key]) for key in _RELATIVES if turn[key] is not None}
        if turn["parent_id"] is not None and related["parent_id"] is None:
            raise ValueError(f"turn {turn['id']} continues turn {turn['parent_id']}, which does not come before it")
        added = insert(TURN).values({**values, **related, "session_id": session_id}).returning(TURN.c.id)
        return int(connection.execute(added).scalar_one())

    def _name(self, connection: Connection, bundle: Bundle, *, rename: bool) -> str | None:
        name, number = bundle.name, 1
        while (taken := _session(connection, name)) is not None:
            if _is_same(connection, taken, bundle):
                return None
            if not rename:
                raise NameTaken(
                    f"the record has another session {name!r}: give --rename, and it becomes {name}.2 or so"
                )
            number += 1
            name = f"{bundle.name}.{number}"
        return name


def index(connection: Connection, turns: Sequence[tuple[int, Mapping[str, Any]]], blobs: Mapping[str, bytes]) -> None:
    """Let turns, by their ids here, be searched for. `blobs` has the messages they name."""
    said = {turn_id: [*turn["messages"], *filter(None, [turn["reply"]])] for turn_id, turn in turns}
    digests = {digest for ids in said.values() for digest in ids}
    search.store(connection, {digest: search.words(codec.loads(blobs[digest])) for digest in digests})
    for turn_id, ids in said.items():
        search.link(connection, turn_id, list(dict.fromkeys(ids)))


def _session(connection: Connection, name: str) -> Mapping[str, Any] | None:
    row = connection.execute(select(SESSION).where(SESSION.c.name == name)).one_or_none()
    return None if row is None else dict(row._mapping)


def _is_same(connection: Connection, session: Mapping[str, Any], bundle: Bundle) -> bool:
    """Whether a session was put here before: it began at the same moment, and so did each of its turns."""
    query = select(TURN.c.received_at).where(TURN.c.session_id == session["id"]).order_by(TURN.c.id)
    here = [session["created_at"], *connection.execute(query).scalars()]
    return here == [bundle.session["created_at"], *(turn["received_at"] for turn in bundle.turns)]
