"""What the pages ask the database that the Reader does not: groups, batches, and whether anything has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, case, func, select
from sqlalchemy.orm import Session as Transaction

from replay.groups import chunks
from replay.schema import Batch, BatchRow, Session, Turn


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group and its rewards; `last` is the id of its newest session."""

    name: str
    task: str | None
    last: int
    sessions: int
    open: int
    judged: int
    mean: float | None
    least: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class Credit:
    """What a training batch made of a session: its advantage, or why it was left out."""

    batch: int
    advantage: float
    skipped: str | None


def version(engine: Engine, session_id: int | None) -> str:
    """Changes when what the pages show does: of one session, or of all."""
    queries: list[Any]
    if session_id is None:
        # Each is answered from an index: open pages ask every two seconds. Whoever sets a reward sets `scored_at`.
        queries = [
            select(func.count()).select_from(Session),
            select(func.max(Session.id)),
            select(func.max(Session.scored_at)),
            select(func.count()).select_from(Session).where(Session.status == "open"),
            select(func.max(Turn.id)),
            select(func.count()).select_from(Turn).where(Turn.status == "open"),
            select(func.max(Batch.id)),
        ]
    else:
        session = select(Session.status, Session.reward, Session.scored_at).where(Session.id == session_id)
        ends = (func.count(Turn.first_token_at), func.count(Turn.done_at), func.count(Turn.delivered_at))
        queries = [session, select(func.count(), *ends).where(Turn.session_id == session_id)]
    with engine.connect() as connection:
        found = [connection.execute(query).all() for query in queries]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def harnesses(engine: Engine) -> list[str]:
    """The names of all harnesses."""
    found: list[str] = []
    with engine.connect() as connection:
        name = connection.scalar(select(func.min(Session.harness)))
        while name is not None:  # from name to name in the index: DISTINCT would read it all
            found.append(name)
            name = connection.scalar(select(func.min(Session.harness)).where(Session.harness > name))
    return found


def groups(engine: Engine, *, before: int | None, limit: int) -> list[GroupLine]:
    """Groups, the one with the newest session first; `before` is the `last` of the list that these follow."""
    last = func.max(Session.id)
    newest = select(Session.group).where(Session.group.is_not(None)).group_by(Session.group)
    if before is not None:
        newest = newest.having(last < before)
    query = (
        select(
            Session.group, func.max(Session.task), last, func.count(),
            func.sum(case((Session.status == "open", 1), else_=0)), func.count(Session.reward),
            func.avg(Session.reward), func.min(Session.reward), func.max(Session.reward),
        )
        .where(Session.group.in_(newest.order_by(last.desc()).limit(limit)))
        .group_by(Session.group).order_by(last.desc())
    )  # fmt: skip
    with engine.connect() as connection:
        return [GroupLine(*row) for row in connection.execute(query)]


def credits_of(engine: Engine, sessions: Sequence[Session]) -> dict[int, Credit]:
    """What the newest batch that used each session made of it, by the session's id."""
    found: dict[int, Credit] = {}
    with engine.connect() as connection:
        for ids in chunks([session.id for session in sessions]):
            query = (
                select(Turn.session_id, BatchRow.batch_id, BatchRow.advantage, BatchRow.info)
                .join(BatchRow, BatchRow.turn_id == Turn.id)
                .where(Turn.session_id.in_(ids))
                .order_by(BatchRow.batch_id)
            )
            for session_id, batch, advantage, info in connection.execute(query):
                found[session_id] = Credit(batch, advantage, (info or {}).get("skipped"))
    return found


def batches(engine: Engine, *, before: int | None, limit: int) -> list[Batch]:
    """Training batches, newest first."""
    query = select(Batch).order_by(Batch.id.desc()).limit(limit)
    if before is not None:
        query = query.where(Batch.id < before)
    with Transaction(engine) as transaction:
        return list(transaction.scalars(query))


def rewards(engine: Engine, batch_ids: Sequence[int]) -> dict[int, tuple[int, float | None]]:
    """How many sessions each batch looked at, those it left out too, and the mean of their rewards."""
    found: dict[int, tuple[int, float | None]] = {}
    with engine.connect() as connection:
        for ids in chunks(batch_ids):
            sessions = (
                select(BatchRow.batch_id, Session.id, Session.reward)
                .join(Turn, Turn.id == BatchRow.turn_id)
                .join(Session, Session.id == Turn.session_id)
                .where(BatchRow.batch_id.in_(ids))
                .distinct()
                .subquery()
            )
            query = select(sessions.c.batch_id, func.count(), func.avg(sessions.c.reward))
            for batch, count, mean in connection.execute(query.group_by(sessions.c.batch_id)):
                found[batch] = (count, mean)
    return found


def places(engine: Engine, turn_ids: Sequence[int]) -> dict[int, Session]:
    """The session of each turn, by the turn's id."""
    found: dict[int, Session] = {}
    with Transaction(engine) as transaction:
        for ids in chunks(turn_ids):
            query = select(Turn.id, Session).join(Session, Session.id == Turn.session_id).where(Turn.id.in_(ids))
            found |= {turn_id: session for turn_id, session in transaction.execute(query)}
    return found
