"""The pages of one session: its tree of turns, their timings, and the sequences that training makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay import sequences, timings, trees
from replay.readiness import reasons_not_trained
from replay.schema import Session, Turn
from replay.view.asking import Answer, Ask, Page
from replay.view.charts import Span, spans
from replay.view.spans import Piece, piece

PIECES = 100
"""Turns of a sequence on one page."""
_GIST = 160
_DEEPEST = 8
"""As far in as the style sheet goes."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the tree: a turn, and in short what it was asked and answered."""

    number: int
    turn: Turn
    depth: int
    parent: int | None
    """The turn that this one is a fork of."""
    asked: str
    answered: str
    calls: tuple[tuple[str, str], ...]
    not_trained: str | None
    onward: tuple[str, ...]
    """Sessions that go on from this turn."""


def tree(ask: Ask) -> Answer:
    """The turns as a tree; roots say why they are."""
    session = ask.session()
    turns = ask.reader.turns(session, tokens=True)
    numbers = {turn.id: number for number, turn in enumerate(turns, 1)}
    said = ask.reader.said(turns)
    reasons = reasons_not_trained(turns)
    onward = ask.reader.branches(session)
    rows = []
    for line in trees.lines(turns):
        new, reply = said[line.turn.id]
        rows.append(
            Row(
                number=numbers[line.turn.id],
                turn=line.turn,
                depth=min(line.depth, _DEEPEST),
                parent=numbers[line.turn.parent_id] if line.fork and line.turn.parent_id is not None else None,
                asked=_asked(new),
                answered=gist((reply or {}).get("content") or (reply or {}).get("reasoning") or ""),
                calls=tuple((call["name"], gist(call["arguments"])) for call in (reply or {}).get("tool_calls") or ()),
                not_trained=reasons[line.turn.id] if line.turn.n_sampled else None,
                onward=tuple(onward.get(line.turn.id, ())),
            )
        )
    return Page("session.html", {**_about(ask, session, turns), "rows": rows, "tab": "tree", "numbers": numbers})


def times(ask: Ask) -> Answer:
    """When each call came, began to answer and was done, on one clock."""
    session = ask.session()
    turns = ask.reader.turns(session, tokens=True)
    measured = timings.measure(turns)
    length = max((one.start + (one.delivered or one.done or 0.0) for one in measured), default=0.0)
    bars: list[Span] = spans(measured, length)
    values = {"rows": list(zip(measured, bars, strict=True)), "length": length, "tab": "timings"}
    return Page("timings.html", {**_about(ask, session, turns), **values})


def sequence(ask: Ask) -> Answer:
    """One training sequence of the session, token by token, with its loss mask; a hundred turns a page."""
    session = ask.session()
    turns = ask.reader.turns(session, tokens=True)
    reasons = reasons_not_trained(turns)
    found = _paths(turns, reasons)
    number = ask.number("sequence")
    if number > len(found) or number < 1:
        raise LookupError(f"session {session.name!r} has {len(found)} training sequences, no sequence {number}")
    path = found[number - 1]
    numbers = {turn.id: place for place, turn in enumerate(turns, 1)}
    by_id = {turn.id: turn for turn in turns}
    start = ask.whole("from") or 1
    pieces: list[Piece] = []
    for turn_id in path.turns[start - 1 : start - 1 + PIECES]:
        turn = by_id[turn_id]
        why = None if turn_id in path.trained else reasons[turn_id] or "trained in an earlier sequence"
        pieces.append(
            piece(
                turn.prompt_suffix, turn.sampled or [], turn.logprobs or [], ask.tokenizer,
                turn=numbers[turn_id], purpose=turn.purpose, not_trained=why,
            )
        )  # fmt: skip
    last = by_id[path.turns[-1]]
    values = {
        "pieces": pieces, "sequence": number, "tab": "sequences", "decoded": ask.tokenizer is not None,
        "tokens": last.prompt_length + last.n_sampled, "trained": sum(by_id[one].n_sampled for one in path.trained),
        "start": start, "starts": list(range(1, len(path.turns) + 1, PIECES)), "calls": len(path.turns),
        "per_page": PIECES,
    }  # fmt: skip
    return Page("sequence.html", {**_about(ask, session, turns), **values})


def _about(ask: Ask, session: Session, turns: Sequence[Turn]) -> dict[str, Any]:
    """What all pages of a session show above; the turns have their tokens."""
    [overview] = ask.reader.overview([session])
    origin = next((turn.replays for turn in turns if turn.replays is not None), None)
    replayed = None if origin is None else ask.reader.session_name(ask.reader.turn(origin).session_id)
    paths = _paths(turns, reasons_not_trained(turns))
    return {"session": session, "overview": overview, "replayed": replayed, "sequences": len(paths)}


def _paths(turns: Sequence[Turn], reasons: Mapping[int, str | None]) -> list[sequences.Path]:
    trainable = {turn.id for turn in turns if turn.n_sampled and reasons[turn.id] is None}
    return sequences.paths({turn.id: turn.parent_id for turn in turns}, trainable)


def _asked(new: Sequence[Mapping[str, Any]]) -> str:
    """The last thing that was said to the model, and by whom."""
    if not new:
        return ""
    others = f" (+{len(new) - 1})" if len(new) > 1 else ""
    told = [one for one in new if one.get("role") not in ("system", "developer")]
    last = (told or new)[-1]
    return f"{last.get('role', '?')}{others}: {gist(last.get('content') or '')}"


def gist(text: str) -> str:
    """The beginning of a text, on one line."""
    short = " ".join(text[: 4 * _GIST].split())
    return short if len(short) <= _GIST else short[: _GIST - 1] + "…"
