"""Two sessions side by side, call by call: where they first differ in messages, tools, tokens and logprobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from replay.compare import Difference, first_difference
from replay.reader import Reader
from replay.schema import Session, Turn
from replay.tokens import visible
from replay.volatile import Volatile

EXACT = 1e-6
"""Logprobs (float32) that differ by less are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two calls that correspond; turns are numbered from 1, None where one session has no such call.

    `prompt` and `sampled` are the place of the first differing id, from 0; None where all are the same. `logprobs` is
    the largest difference (nats) over the sampled ids before that.
    """

    purpose: str
    one: int | None
    other: int | None
    messages: Difference | None = None
    tools: str | None = None
    prompt: int | None = None
    sampled: int | None = None
    logprobs: float = 0.0
    finish: tuple[str, str] | None = None

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        found = (self.messages, self.tools, self.prompt, self.sampled, self.finish)
        return None in (self.one, self.other) or any(one is not None for one in found) or self.logprobs > EXACT


def compare(
    reader: Reader, one: Session, other_reader: Reader, other: Session, volatile: Volatile | None = None
) -> list[Pair]:
    """Pair the calls of two sessions and compare each pair.

    Calls of a run that replays the other session correspond to those they were answered from; else the n-th call of a
    purpose corresponds to the n-th. What is `volatile` in messages (default: what is known to be) is no difference.
    """
    volatile = volatile or Volatile()
    readers, sessions = (reader, other_reader), (one, other)
    turns = [r.turns(session, tokens=True) for r, session in zip(readers, sessions, strict=True)]
    numbers = [{turn.id: number for number, turn in enumerate(found, 1)} for found in turns]
    histories = [_histories(r, found) for r, found in zip(readers, turns, strict=True)]
    tools = [{turn.id: r.tools(turn) for turn in found} for r, found in zip(readers, turns, strict=True)]
    prompts = [{turn.id: r.prompt_ids(turn) for turn in found} for r, found in zip(readers, turns, strict=True)]
    found = []
    for a, b in _pairs(turns[0], turns[1], numbers[0] if reader.store is other_reader.store else {}):
        places = None if a is None else numbers[0][a.id], None if b is None else numbers[1][b.id]
        if a is None or b is None:
            found.append(Pair(purpose=(a or b or turns[0][0]).purpose, one=places[0], other=places[1]))
            continue
        finish = (a.finish or a.status, b.finish or b.status)
        found.append(
            Pair(
                purpose=a.purpose,
                one=places[0],
                other=places[1],
                messages=_messages(histories[0][a.id], histories[1][b.id], volatile),
                tools=_tools(tools[0][a.id], tools[1][b.id]),
                prompt=_unlike(prompts[0][a.id], prompts[1][b.id]),
                sampled=_unlike(a.sampled or [], b.sampled or []),
                logprobs=_drift(a, b),
                finish=finish if finish[0] != finish[1] else None,
            )
        )
    return found


def document(pairs: Sequence[Pair]) -> dict[str, Any]:
    """As JSON."""
    listed = [
        {
            "purpose": pair.purpose, "one": pair.one, "other": pair.other, "differs": pair.differs,
            "messages": None if pair.messages is None else str(pair.messages), "tools": pair.tools,
            "prompt": pair.prompt, "sampled": pair.sampled, "logprobs": pair.logprobs,
            "finish": None if pair.finish is None else list(pair.finish),
        }
        for pair in pairs
    ]  # fmt: skip
    return {"differences": sum(pair.differs for pair in pairs), "calls": listed}


def view(one: Session, other: Session, pairs: Sequence[Pair]) -> RenderableType:
    """For the terminal: what is compared, a line a pair, and the first difference in words."""
    parts: list[RenderableType] = [_side("A", one), _side("B", other), _table(pairs)]
    first = next((pair for pair in pairs if pair.differs), None)
    if first is None:
        return Stack(*parts, Text(f"\nno differences in {len(pairs)} calls", "green"))
    return Stack(*parts, _words(first))


def _pairs(
    one: Sequence[Turn], other: Sequence[Turn], known: Mapping[int, int]
) -> list[tuple[Turn | None, Turn | None]]:
    """Turns that correspond. `known` are the ids that `replays` may name."""
    by_id = {turn.id: turn for turn in one}
    answered = {turn.replays: turn for turn in other if turn.replays in known}
    found: list[tuple[Turn | None, Turn | None]] = [(by_id[a], b) for a, b in answered.items() if a is not None]
    left = [turn for turn in one if turn.id not in answered]
    right = [turn for turn in other if turn.replays not in answered]
    for purpose in dict.fromkeys(turn.purpose for turn in (*left, *right)):
        a, b = ([turn for turn in side if turn.purpose == purpose] for side in (left, right))
        longer = max(len(a), len(b))
        found += zip(_padded(a, longer), _padded(b, longer), strict=True)
    return sorted(found, key=lambda pair: next(turn.id for turn in pair if turn is not None))


def _messages(
    one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]], volatile: Volatile
) -> Difference | None:
    found = first_difference([volatile.message(m) for m in one], [volatile.message(m) for m in other])
    if found is None or found.field != "content":
        return found
    return replace(found, byte=volatile.place(str(other[found.message - 1].get("content") or ""), found.byte))


def _padded(turns: Sequence[Turn], length: int) -> list[Turn | None]:
    return [*turns, *([None] * (length - len(turns)))]


def _histories(reader: Reader, turns: Sequence[Turn]) -> dict[int, list[dict[str, Any]]]:
    """Each turn's whole conversation, neutral."""
    asked: dict[int, list[dict[str, Any]]] = {}
    for turn in turns:
        before: list[dict[str, Any]] = []
        if turn.parent_id is not None:
            reply = reader.reply(turn.parent_id)
            before = [*asked[turn.parent_id], *([] if reply is None else [reply])]
        asked[turn.id] = [*before, *reader.new_messages(turn)]
    return asked


def _tools(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> str | None:
    old, new = ({tool["name"]: tool for tool in tools} for tools in (one, other))
    notes = [f"{what} {', '.join(names)}" for what, names in (
        ("added", [name for name in new if name not in old]),
        ("removed", [name for name in old if name not in new]),
        ("changed", [name for name in old if name in new and old[name] != new[name]]),
    ) if names]  # fmt: skip
    return "; ".join(notes) or None


def _unlike(one: Sequence[int], other: Sequence[int]) -> int | None:
    if list(one) == list(other):
        return None
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _drift(one: Turn, other: Turn) -> float:
    upto = _unlike(one.sampled or [], other.sampled or [])
    pairs = list(zip(one.logprobs or [], other.logprobs or [], strict=False))[:upto]
    return max((abs(a - b) for a, b in pairs), default=0.0)


def _side(letter: str, session: Session) -> Text:
    text = Text(f"{letter}  ", "dim").append(visible(session.name), "bold")
    harness = " ".join(part for part in (session.harness, session.harness_version) if part)
    return text.append(f"  {visible(harness)}" if harness else "", "dim")


def _table(pairs: Sequence[Pair]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in ("A", "B"):
        table.add_column(header, justify="right", no_wrap=True)
    for header in ("call", "messages", "tools", "prompt ids", "sampled ids", "logprobs", "finish"):
        table.add_column(header, no_wrap=True)
    for pair in pairs:
        table.add_row(
            "-" if pair.one is None else f"#{pair.one}",
            "-" if pair.other is None else f"#{pair.other}",
            pair.purpose,
            *_cells(pair),
        )
    return table


def _cells(pair: Pair) -> list[Text]:
    if pair.one is None or pair.other is None:
        return [Text("only in " + ("B" if pair.one is None else "A"), "yellow")]
    texts = (
        None if pair.messages is None else f"message {pair.messages.message}",
        pair.tools,
        None if pair.prompt is None else f"from {pair.prompt}",
        None if pair.sampled is None else f"from {pair.sampled}",
        f"{pair.logprobs:.2g}" if pair.logprobs > EXACT else None,
        None if pair.finish is None else " → ".join(pair.finish),
    )
    return [Text("=", "dim") if text is None else Text(visible(text), "yellow") for text in texts]


def _words(pair: Pair) -> Text:
    where = Text(f"\nfirst difference, A #{pair.one or '-'} and B #{pair.other or '-'}:", "bold")
    if pair.one is None or pair.other is None:
        return where.append(f"\n  a {pair.purpose} call that only {'B' if pair.one is None else 'A'} makes", "not bold")
    found = [
        None if pair.messages is None else str(pair.messages),
        None if pair.tools is None else f"tools {pair.tools}",
        None if pair.prompt is None else f"prompt ids from token {pair.prompt} on",
        None if pair.sampled is None else f"sampled ids from token {pair.sampled} on",
        f"logprobs by up to {pair.logprobs:.2g}" if pair.logprobs > EXACT else None,
        None if pair.finish is None else f"finish {' → '.join(pair.finish)}",
    ]
    for text in found:
        where.append(f"\n  {visible(text)}" if text is not None else "", "not bold")
    return where
