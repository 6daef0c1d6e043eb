"""One harness's outcome: what went over the wire, what the record has of it, and whether that is as it should be."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replay.reader import Reader
from replay.schema import Turn
from replay.sequences import paths

_OURS = ("model", "compact", "stored", "models", "count")
"""Requests that the gateway serves; all others are a harness's housekeeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a harness process went. `status` is None when the time limit ended it.

    `done` says whether the task was, None where that says nothing of us (a real model may fail at it). `bypassed` are
    connections past the proxy, None where nobody watched.
    """

    status: int | None
    seconds: float
    done: bool | None
    bypassed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table; `faults` is empty for a green one, the first fault comes first."""

    harness: str
    version: str
    run: Run | None = None
    dialects: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    calls: int = 0
    turns: int = 0
    purposes: Mapping[str, int] = field(default_factory=dict)
    sequences: int = 0
    main_sequences: int = 0
    housekeeping: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def wire_of(log: Path, session: str) -> list[dict[str, Any]]:
    """The requests of a session that :mod:`addons.matrix.flowlog` noted, in order."""
    if not log.exists():
        return []
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if line["session"] == session]


def row_of(
    harness: str, version: str, run: Run, reader: Reader, session: str, wire: Sequence[Mapping[str, Any]]
) -> Row:
    """Put together what is known of a session."""
    found = reader.session(session)
    turns = reader.turns(found)
    [overview] = reader.overview([found])
    model = [line for line in wire if line["kind"] == "model"]
    return Row(
        harness=harness,
        version=version,
        run=run,
        dialects=_distinct(turn.dialect for turn in turns),
        transports=_distinct(_transport(line) for line in model),
        calls=sum(line["calls"] for line in model),
        turns=len(turns),
        purposes=Counter(turn.purpose for turn in turns),
        sequences=overview.sequences,
        main_sequences=_main_sequences(turns),
        housekeeping=_distinct(line["host"] for line in wire if line["kind"] not in _OURS),
        faults=tuple(_faults(run, turns, model, _breaks(reader, turns))),
    )


def _faults(run: Run, turns: Sequence[Turn], model: Sequence[Mapping[str, Any]], breaks: Sequence[Turn]) -> list[str]:
    """What is not as it should be; what went wrong first on the wire comes first, since the rest follows from it."""
    faults = [
        f"{line['method']} {line['host']}{line['path']}: {line['error'] or line['status']}"
        for line in model
        if line["error"] is not None or line["status"] is None or line["status"] >= 400
    ]
    for number, turn in enumerate(turns, 1):
        if turn.status != "complete":
            faults.append(f"turn {number} {turn.status}: {(turn.error or {}).get('message', '')}".rstrip(": "))
    for turn in breaks:
        faults.append(f"turn {turns.index(turn) + 1} continues none before it: {turn.drift_reason}")
    if not breaks and (found := _main_sequences(turns)) > 1 + sum(map(_summarised, turns)):
        faults.append(f"the conversation forked into {found} sequences")
    if not turns:
        faults.append("no model call reached us")
    if run.bypassed:
        faults.append(f"went past the proxy: {', '.join(run.bypassed)}")
    if run.done is False:
        faults.append("the file was not written")
    if run.status is None:
        faults.append(f"ran longer than {run.seconds:.0f} s")
    elif run.status != 0:
        faults.append(f"exit status {run.status}")
    return faults


def _breaks(reader: Reader, turns: Sequence[Turn]) -> list[Turn]:
    """Roots that should have continued a turn: a second of the main conversation; or a subagent's that brings a tool's
    result, since every call of a tool was sampled here. (A side call may quote one: Gemini CLI's check for loops.) What
    was made from a summary begins anew by right.
    """
    roots = [turn for turn in turns if turn.parent_id is None and not _summarised(turn)]
    main = [turn for turn in roots if turn.purpose == "main"]
    return [
        turn
        for turn in roots
        if turn in main[1:]
        or (turn.purpose == "subagent" and any(m["role"] == "tool" for m in reader.new_messages(turn)))
    ]


def _summarised(turn: Turn) -> bool:
    return turn.purpose == "main" and turn.drift_reason == "compaction"


def _main_sequences(turns: Sequence[Turn]) -> int:
    main = [turn.id for turn in turns if turn.purpose == "main" and turn.n_sampled]
    return len(paths({turn.id: turn.parent_id for turn in turns}, main))


def _transport(line: Mapping[str, Any]) -> str:
    if line["websocket"]:
        return "WebSocket"
    return f"{line['http']}, {'streamed' if line['streamed'] else 'whole'}"


def _distinct(values: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
