"""When things happened in a session: each call on one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from replay.schema import Turn


def timings(turns: Sequence[Turn], wanted: Sequence[Turn], numbers: Mapping[int, int]) -> Table:
    """A row for each of the `wanted` ones of a session's `turns`.

    `start` counts from the session's first call; `first token`, `done` and `taken` from the call's arrival; `idle` is
    the harness's own time since its previous call was done. Seconds.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in ("turn", "start", "idle", "first token", "done", "taken", "sampled", "tokens/s"):
        table.add_column(header, justify="right", no_wrap=True)
    begin = turns[0].received_at if turns else 0.0
    for turn in wanted:
        before = [t.done_at for t in turns if t.done_at is not None and t.done_at <= turn.received_at]
        table.add_row(
            Text(f"#{numbers[turn.id]}", "bold"),
            f"{turn.received_at - begin:.2f}",
            f"{turn.received_at - max(before):.2f}" if before else "-",
            *(_since(turn, at) for at in (turn.first_token_at, turn.done_at, turn.delivered_at)),
            f"{turn.n_sampled:,}",
            _rate(turn),
        )
    return table


def _since(turn: Turn, at: float | None) -> str:
    return "-" if at is None else f"+{at - turn.received_at:.2f}"


def _rate(turn: Turn) -> str:
    """Tokens a second after the first one."""
    if turn.done_at is None or turn.first_token_at is None or turn.n_sampled < 2:
        return "-"
    seconds = turn.done_at - turn.first_token_at
    return f"{(turn.n_sampled - 1) / seconds:,.0f}" if seconds > 0 else "-"
