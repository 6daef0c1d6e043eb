"""When things happened in a session: each call on one clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from replay.schema import Turn


@dataclass(frozen=True, slots=True)
class Timing:
    """When a call happened, in seconds. What has not happened is None."""

    turn: Turn
    start: float
    """Since the session's first call; what follows counts from the call's own arrival."""
    idle: float | None
    """The harness's own time: since a call before it was done."""
    first_token: float | None
    done: float | None
    delivered: float | None
    rate: float | None
    """Tokens a second after the first one."""


def measure(turns: Sequence[Turn]) -> list[Timing]:
    """The timing of each of a session's turns, in their order."""
    begin = turns[0].received_at if turns else 0.0
    ends = sorted(turn.done_at for turn in turns if turn.done_at is not None)
    found = []
    for turn in turns:
        before = bisect_right(ends, turn.received_at)
        found.append(
            Timing(
                turn,
                start=turn.received_at - begin,
                idle=turn.received_at - ends[before - 1] if before else None,
                first_token=_since(turn, turn.first_token_at),
                done=_since(turn, turn.done_at),
                delivered=_since(turn, turn.delivered_at),
                rate=_rate(turn),
            )
        )
    return found


def timings(turns: Sequence[Turn], wanted: Sequence[Turn], numbers: Mapping[int, int]) -> Table:
    """For the terminal: a row for each of the `wanted` ones of a session's `turns`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in ("turn", "start", "idle", "first token", "done", "taken", "sampled", "tokens/s"):
        table.add_column(header, justify="right", no_wrap=True)
    shown = {turn.id for turn in wanted}
    for one in measure(turns):
        if one.turn.id in shown:
            table.add_row(
                Text(f"#{numbers[one.turn.id]}", "bold"),
                f"{one.start:.2f}",
                "-" if one.idle is None else f"{one.idle:.2f}",
                *("-" if at is None else f"+{at:.2f}" for at in (one.first_token, one.done, one.delivered)),
                f"{one.turn.n_sampled:,}",
                "-" if one.rate is None else f"{one.rate:,.0f}",
            )
    return table


def _since(turn: Turn, at: float | None) -> float | None:
    return None if at is None else at - turn.received_at


def _rate(turn: Turn) -> float | None:
    if turn.done_at is None or turn.first_token_at is None or turn.n_sampled < 2:
        return None
    seconds = turn.done_at - turn.first_token_at
    return (turn.n_sampled - 1) / seconds if seconds > 0 else None
