"""A session's turns as a tree of lines, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replay.schema import Turn


@dataclass(frozen=True, slots=True)
class Line:
    """A turn, and how far in it stands: 0 for a root."""

    turn: Turn
    depth: int
    fork: bool
    """Its parent has other turns that continue it."""


def lines(turns: Sequence[Turn]) -> Iterator[Line]:
    """The turns of a session, parents before their children.

    A path goes straight down below its first turn: only what follows a root or a fork stands further in.
    """
    children: dict[int | None, list[Turn]] = {}
    for turn in turns:
        children.setdefault(turn.parent_id, []).append(turn)
    # Depth first with a stack of our own: a session of a thousand turns is deeper than Python's. `first`: of its path.
    pending = [(root, 0, True) for root in reversed(children.get(None, []))]
    while pending:
        turn, depth, first = pending.pop()
        yield Line(turn, depth, fork=first and turn.parent_id is not None)
        following = children.get(turn.id, [])
        forks = len(following) > 1
        pending += [(child, depth + (first or forks), forks) for child in reversed(following)]
