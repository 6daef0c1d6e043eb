"""What a write does, inside a transaction that somebody else commits.

Each operation comes in two steps. `prepare_*` runs outside the transaction and does the costly part
(encoding, hashing); it gives the blobs and a function for inside, which checks against the database and
writes rows.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from sqlalchemy import Connection, Insert, Table, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import InstrumentedAttribute

from replay import bodies, codec, redact, search
from replay.records import NewBatch, NewSession, NewTurn, Purpose, SessionStatus, TurnEnd
from replay.schema import Base, Batch, BatchRow, Blob, Session, Turn

# Made once, on the table: building them for each turn would cost more than running them.
_TURN = cast(Table, Turn.__table__)
_INSERT_TURN = insert(_TURN).returning(_TURN.c.id)
_END_TURN = update(_TURN).where(_TURN.c.id == bindparam("turn_id"), _TURN.c.status == "open")


@dataclass(frozen=True, slots=True)
class Prepared[T]:
    """A write, ready. `blobs` are JSON texts, and images, by digest; `apply` needs them stored."""

    blobs: Mapping[str, bytes]
    apply: Callable[[Connection], T]
    messages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Messages by digest, to be searched for; `apply` needs them indexed."""


def blob_rows(blobs: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Rows for `store_blobs`; sorted, so that two recorders never wait for each other in a circle."""
    return [{"sha256": key, "size": len(text), "data": codec.compress(text)} for key, text in sorted(blobs.items())]


def store_blobs(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Insert the blobs that are not there yet."""
    if rows:
        connection.execute(_insert_or_ignore(connection, Blob, Blob.sha256), rows)


def prepare_session(new: NewSession, at: float) -> Prepared[int]:
    """Insert a session, or fill what is NULL in the one of that name; gives its id."""
    given = {
        "key_hash": new.key_hash,
        "harness": clean(new.harness),
        "harness_version": clean(new.harness_version),
        "task": new.task,
        "group": new.group,
    }
    metadata = redact.everything(dict(new.metadata))

    def apply(connection: Connection) -> int:
        connection.execute(
            _insert_or_ignore(connection, Session, Session.name),
            {"name": new.name, "status": "open", "created_at": at},
        )
        row = connection.execute(select(Session.__table__).where(Session.name == new.name)).one()
        known = {"group": row.group_name, **row._mapping}
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None and known[k] is None}
        merged = {**metadata, **(row.metadata or {})}
        if merged != (row.metadata or {}):
            changes["meta"] = merged
        if changes:
            connection.execute(update(Session).where(Session.id == row.id).values(changes))
        return int(row.id)

    return Prepared({}, apply)


def prepare_turn(new: NewTurn, cache: ItemCache, owner: str) -> Prepared[int]:
    """Insert a turn of `owner` as `open`; gives its id."""
    body = bodies.split(new.request)
    messages = [codec.dumps(message) for message in new.messages]
    digests = [codec.digest(text) for text in messages]
    tools = codec.dumps(list(new.tools)) if new.tools else None
    values = {
        "session_id": new.session_id,
        "parent_id": new.parent_id,
        "retry_of": new.retry_of,
        "replays": new.replays,
        "purpose": new.purpose,
        "dialect": new.dialect,
        "route": clean(redact.url(new.route)),
        "model": clean(new.model),
        "status": "open",
        "owner": owner,
        "prompt_suffix": new.prompt_suffix,
        "prompt_length": new.prompt_length,
        "suffix_length": len(new.prompt_suffix),
        "images": [dict(image) for image in new.images] or None,
        "n_sampled": 0,
        "sampling_asked": redact.fields(dict(new.sampling_asked)),
        "sampling_sent": redact.fields(dict(new.sampling_sent)),
        "ignored_fields": list(new.ignored_fields),
        "drift_reason": new.drift_reason,
        "drift_detail": clean(new.drift_detail),
        "rendering": None if new.rendering is None else dict(new.rendering),
        "thread": clean(new.thread),
        "template_hash": new.template_hash,
        "weight_version": new.weight_version,
        "body_digest": new.body_digest,
        "reply_id": new.reply_id,
        "opening": new.opening,
        "skeleton": body.skeleton,
        "tools": None if tools is None else codec.digest(tools),
        "messages": digests,
        "received_at": new.received_at,
    }

    def apply(connection: Connection) -> int:
        _check_session(connection, new)
        items = bodies.encode_items(body.items, _parent_items(connection, new, cache))
        turn_id = int(connection.execute(_INSERT_TURN, {**values, "request_items": items}).scalar_one())
        search.link(connection, turn_id, digests)
        return turn_id

    blobs = {**body.blobs, **dict(zip(digests, messages, strict=True)), **new.files}
    if tools is not None:
        blobs[codec.digest(tools)] = tools
    return Prepared(blobs, apply, dict(zip(digests, new.messages, strict=True)))


def prepare_end(turn_id: int, end: TurnEnd) -> Prepared[None]:
    """Close an open turn with what was sampled."""
    reply = None if end.reply is None else codec.dumps(end.reply)
    digest = None if reply is None else codec.digest(reply)
    values = {
        "status": end.status,
        "sampled": end.sampled,
        "logprobs": end.logprobs,
        "n_sampled": len(end.sampled),
        "finish": end.finish,
        "stop_sequence": clean(end.stop_sequence),
        "usage": None if end.usage is None else dict(end.usage),
        "reply": digest,
        "after_digest": end.after_digest,
        "weight_version_end": end.weight_version_end,
        "first_token_at": end.first_token_at,
        "done_at": end.done_at,
        "error": None if end.error is None else redact.everything(dict(end.error)),
        "untrainable": end.untrainable,
    }
    if spans := end.weight_versions:
        values["weight_version"], values["weight_version_end"] = spans[0].version, spans[-1].version
        values["weight_versions"] = [asdict(span) for span in spans] if len(spans) > 1 else None

    def apply(connection: Connection) -> None:
        changed = connection.execute(_END_TURN, {**values, "turn_id": turn_id})
        if changed.rowcount != 1:
            status = connection.execute(select(Turn.status).where(Turn.id == turn_id)).scalar_one_or_none()
            raise ValueError(f"no turn {turn_id}" if status is None else f"turn {turn_id} is already {status}")
        if digest is not None:
            search.link(connection, turn_id, [digest])

    if end.reply is None or reply is None or digest is None:
        return Prepared({}, apply)
    return Prepared({digest: reply}, apply, {digest: end.reply})


def prepare_sweep(is_gone: Callable[[str], bool], at: float) -> Prepared[int]:
    """Abort the open turns of owners that are gone; how many they were. When they ended is not known."""
    error = {"kind": "lost", "message": "the process that sampled this turn is gone", "at": at}

    def apply(connection: Connection) -> int:
        is_open = Turn.status == "open"
        owners = connection.execute(select(Turn.owner).where(is_open).distinct()).scalars()
        gone = [owner for owner in owners if owner is not None and is_gone(owner)]
        lost = update(Turn).where(is_open, Turn.owner.in_(gone)).values(status="aborted", finish="abort", error=error)
        return connection.execute(lost).rowcount if gone else 0

    return Prepared({}, apply)


def prepare_aside(turn_id: int, purpose: Purpose) -> Prepared[None]:
    """Say that a root, which passed for the agent's, turned out to be beside its conversations."""

    def apply(connection: Connection) -> None:
        values = {"purpose": purpose, "drift_reason": "subagent"}
        if connection.execute(update(Turn).where(Turn.id == turn_id).values(values)).rowcount != 1:
            raise ValueError(f"no turn {turn_id}")

    return Prepared({}, apply)


def prepare_delivered(turn_id: int, at: float) -> Prepared[None]:
    """Note when the harness took a turn's terminal event."""

    def apply(connection: Connection) -> None:
        changed = connection.execute(update(Turn).where(Turn.id == turn_id).values(delivered_at=at))
        if changed.rowcount != 1:
            raise ValueError(f"no turn {turn_id}")

    return Prepared({}, apply)


def prepare_score(
    name: str, reward: float | None, parts: Mapping[str, float] | None, status: SessionStatus | None
) -> Prepared[None]:
    """Set a session's reward (None: not judged) and its parts; and its status, when given."""
    values: dict[str, Any] = {
        "reward": reward,
        "reward_parts": None if parts is None else dict(parts),
        "scored_at": time.time(),
    }
    if status is not None:
        values["status"] = status

    def apply(connection: Connection) -> None:
        if connection.execute(update(Session).where(Session.name == name).values(values)).rowcount != 1:
            raise LookupError(f"no session {name!r}")

    return Prepared({}, apply)


def prepare_batch(new: NewBatch) -> Prepared[int]:
    """Insert a batch and its rows; gives its id."""
    values = {
        "created_at": new.created_at,
        "query": dict(new.query),
        "seed": new.seed,
        "weight_version": new.weight_version,
        "checkpoint": new.checkpoint,
        "stats": None if new.stats is None else dict(new.stats),
    }

    def apply(connection: Connection) -> int:
        batch_id = connection.execute(insert(Batch).values(values).returning(Batch.id)).scalar_one()
        rows = [
            {
                "batch_id": batch_id,
                "position": position,
                "turn_id": row.turn_id,
                "advantage": row.advantage,
                "info": None if row.info is None else dict(row.info),
            }
            for position, row in enumerate(new.rows)
        ]
        if rows:
            connection.execute(insert(BatchRow), rows)
        return batch_id

    return Prepared({}, apply)


def clean(label: str | None) -> str | None:
    """A harness's text, for a text column: what the database cannot hold becomes U+FFFD (blobs are exact)."""
    if label is None:
        return None
    return label.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "\ufffd")


class ItemCache:
    """Digests of all items of a turn's request. They never change, so the most recent ones are kept."""

    def __init__(self, size: int = 4096) -> None:
        self._size = size
        self._items: OrderedDict[int, tuple[str, ...]] = OrderedDict()

    def get(self, connection: Connection, turn_id: int) -> tuple[str, ...]:
        """The digests, by way of the ancestors that are not in the cache."""
        chain: list[tuple[int, list[Any]]] = []
        at: int | None = turn_id
        while at is not None and at not in self._items:
            row = connection.execute(select(Turn.parent_id, Turn.request_items).where(Turn.id == at)).one()
            chain.append((at, row.request_items))
            at = row.parent_id
        items: tuple[str, ...] = ()
        if at is not None:
            items = self._items[at]
            self._items.move_to_end(at)
        for key, encoded in reversed(chain):
            items = self._items[key] = bodies.decode_items(encoded, items)
        while len(self._items) > self._size:
            self._items.popitem(last=False)
        return items


def _insert_or_ignore(connection: Connection, table: type[Base], key: InstrumentedAttribute[str]) -> Insert:
    """INSERT that leaves a row alone which is there already."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing(index_elements=[key])
    return postgresql.insert(table).on_conflict_do_nothing(index_elements=[key])


def _check_session(connection: Connection, new: NewTurn) -> None:
    if connection.execute(select(Session.id).where(Session.id == new.session_id)).first() is None:
        raise ValueError(f"no session with id {new.session_id}")


def _parent_items(connection: Connection, new: NewTurn, cache: ItemCache) -> tuple[str, ...]:
    """The parent's items, once the parent has proved to be one."""
    before = 0
    if new.parent_id is not None:
        parent = connection.execute(
            select(Turn.session_id, Turn.status, Turn.prompt_length, Turn.n_sampled).where(Turn.id == new.parent_id)
        ).one_or_none()
        if parent is None or parent.session_id != new.session_id:
            raise ValueError(f"turn {new.parent_id} is not one of session {new.session_id}")
        if parent.status == "open":
            raise ValueError(f"turn {new.parent_id} is still open: nothing can continue it")
        before = parent.prompt_length + parent.n_sampled
    if new.prompt_length != before + len(new.prompt_suffix):
        raise ValueError(
            f"prompt_length {new.prompt_length} is not {before} (parent's prompt and sampled ids) "
            f"+ {len(new.prompt_suffix)} (suffix)"
        )
    return () if new.parent_id is None else cache.get(connection, new.parent_id)
