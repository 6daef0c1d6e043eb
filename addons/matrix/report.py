"""The table: live on a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from addons.matrix.row import Row

COLUMNS = ("harness", "version", "dialect", "transport", "calls", "turns", "sequences", "task", "bypass", "at home")
_NO_WATCH = "not watched"


def cells(row: Row) -> list[str]:
    """A row's text, column by column (those of `COLUMNS`)."""
    purposes = ", ".join(f"{count} {purpose}" for purpose, count in sorted(row.purposes.items(), key=_main_first))
    run = row.run
    return [
        row.harness,
        row.version,
        ", ".join(row.dialects),
        "; ".join(row.transports),
        str(row.calls),
        purposes,
        str(row.sequences),
        "" if run is None else {True: "done", False: "not done", None: "not judged"}[run.done],
        "" if run is None else _NO_WATCH if run.bypassed is None else str(len(run.bypassed)),
        ", ".join(row.housekeeping),
    ]


def _main_first(purpose: tuple[str, int]) -> tuple[bool, str]:
    return purpose[0] != "main", purpose[0]


def table(stages: Mapping[str, str], rows: Mapping[str, Row]) -> Table:
    """What is known so far: `stages` says of each harness what it is at, `rows` holds those that are over."""
    made = Table(box=None, padding=(0, 2, 0, 0))
    for column in (*COLUMNS[:-1], "result"):
        made.add_column(column, overflow="fold")
    for name, stage in stages.items():
        row = rows.get(name)
        if row is None:
            made.add_row(name, *[""] * (len(COLUMNS) - 2), Text(stage, style="dim"))
        else:
            result = Text(row.faults[0], style="red") if row.faults else Text("green", style="green")
            made.add_row(*cells(row)[:-1], result, style="red" if row.faults else None)
    return made


def markdown(rows: Sequence[Row], *, date: str, command: str) -> str:
    """The same as a Markdown document; a red row says all that is wrong with it."""
    green = sum(not row.faults for row in rows)
    lines = [
        f"{green} of {len(rows)} harnesses green, {date}, by `{command}`.",
        "",
        "| " + " | ".join((*COLUMNS, "result")) + " |",
        "|" + "---|" * (len(COLUMNS) + 1),
    ]
    for row in rows:
        result = "green" if not row.faults else f"**red**: {'; '.join(row.faults)}"
        lines.append("| " + " | ".join(text.replace("|", "\\|") for text in (*cells(row), result)) + " |")
    return "\n".join(lines) + "\n"
