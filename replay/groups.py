"""Which sessions are trained on together, and the numbers of a session: queries over many turns at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select
from sqlalchemy.orm import Session as Transaction
from sqlalchemy.orm import aliased

from replay.schema import BatchRow, Session, Turn

_VARIABLES = 500


@dataclass(frozen=True, slots=True)
class Group:
    """Sessions of one group, none of them open any more."""

    name: str
    sessions: tuple[Session, ...]
    """Those `done`, in order of opening. Their reward may still be None."""
    failed: tuple[Session, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """A session with the numbers of its turns."""

    session: Session
    turns: int
    sequences: int
    """Leaves among the turns that sampled something: the training sequences the session is made of."""
    prompt_tokens: int
    """As sent: every call's whole prompt."""
    new_tokens: int
    """Prompt tokens that no earlier turn of the path had."""
    sampled_tokens: int


def complete_groups(
    transaction: Transaction,
    *,
    min_size: int,
    task: str | None,
    weight_versions: Sequence[str] | None,
    include_trained: bool,
    limit: int | None,
) -> list[Group]:
    """See `Reader.groups`.

    Versions only grow, so no token of a turn is older than its first: where that is recent enough, the turn is, also
    one that a push came into.
    """
    is_open = case((Session.status == "open", 1), else_=0)
    names = (
        select(Session.group)
        .where(Session.group.is_not(None))
        .group_by(Session.group)
        .having(func.sum(is_open) == 0, func.count() >= min_size)
        .order_by(func.min(Session.id))
        .limit(limit)
    )
    if task is not None:
        names = names.having(func.min(Session.task) == task, func.max(Session.task) == task)
    if not include_trained:
        used = exists().where(BatchRow.turn_id == Turn.id)
        names = names.where(Session.group.not_in(_groups_with(used)))
    if weight_versions is not None:
        stale = or_(Turn.weight_version.is_(None), Turn.weight_version.not_in(weight_versions))
        names = names.where(Session.group.not_in(_groups_with(and_(Turn.n_sampled > 0, stale))))
    wanted = [name for name in transaction.scalars(names) if name is not None]
    members: dict[str, list[Session]] = {name: [] for name in wanted}
    for chunk in chunks(wanted):
        for session in transaction.scalars(select(Session).where(Session.group.in_(chunk)).order_by(Session.id)):
            members[session.group or ""].append(session)
    return [
        Group(
            name,
            tuple(session for session in members[name] if session.status == "done"),
            tuple(session for session in members[name] if session.status == "failed"),
        )
        for name in wanted
    ]


def overview(transaction: Transaction, sessions: Sequence[Session]) -> list[Overview]:
    """See `Reader.overview`."""
    child = aliased(Turn)
    leaf = and_(Turn.n_sampled > 0, ~exists().where(child.parent_id == Turn.id, child.n_sampled > 0))
    columns = (
        func.count(),
        func.sum(case((leaf, 1), else_=0)),
        func.sum(Turn.prompt_length),
        func.sum(Turn.suffix_length),
        func.sum(Turn.n_sampled),
    )
    numbers: dict[int, tuple[int, ...]] = {}
    for ids in chunks([session.id for session in sessions]):
        query = select(Turn.session_id, *columns).where(Turn.session_id.in_(ids)).group_by(Turn.session_id)
        for session_id, *row in transaction.execute(query):
            numbers[session_id] = tuple(int(number) for number in row)
    return [Overview(session, *numbers.get(session.id, (0, 0, 0, 0, 0))) for session in sessions]


def chunks[T](values: Sequence[T]) -> list[Sequence[T]]:
    """Cut for IN lists: databases bound how many values a statement takes."""
    return [values[start : start + _VARIABLES] for start in range(0, len(values), _VARIABLES)]


def _groups_with(turn_condition: ColumnElement[bool]) -> Select[str | None]:
    """Groups of the sessions that have such a turn."""
    return (
        select(Session.group)
        .join(Turn, Turn.session_id == Session.id)
        .where(Session.group.is_not(None), turn_condition)
    )
