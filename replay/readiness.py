"""Is a session ready for training? What its sequences train, what they leave out, and where its tree forked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from replay.reader import Reader
from replay.rerender import Refused, Renderer, Rows, joined
from replay.schema import Session, Turn
from replay.sequences import DEFAULT_PURPOSES, Path, not_trained, paths
from replay.tokens import visible

__all__ = ["DEFAULT_PURPOSES", "Fork", "LeftOut", "Readiness", "document", "examine", "view"]

_BEGINS = (None, "first", "subagent")
"""Reasons of roots that begin a conversation."""


@dataclass(slots=True)
class LeftOut:
    """Sampled tokens that are not trained for one reason, and the turns (1-based) they are in."""

    tokens: int = 0
    turns: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A turn (1-based) that should continue a turn and does not, or continues one that another turn continues already
    (`parent`). Where a conversation merely begins, the agent's or a subagent's, nothing forks."""

    turn: int
    parent: int | None
    reason: str
    detail: str | None
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What training would make of one session. Tokens of `ours` are those of all sequences, context included."""

    session: Session
    turns: int
    sampled: int
    trained: int
    ours: Rows
    left_out: Mapping[str, LeftOut]
    forks: tuple[Fork, ...]
    changed: Mapping[int, str]
    """What the harness changed of what the model had seen, in turns that continue another all the same."""
    retries: tuple[tuple[int, int], ...]
    """(turn, the turn it is a retry of)."""
    exact_prefix: Rows
    rerendered: Rows | None
    """None: not computed, since no tokenizer was given."""
    refused: Mapping[int, str]
    """Turns whose messages the template does not take, with its words; each is a row of its own."""

    @property
    def unexplained(self) -> int:
        """Sampled tokens that are neither trained nor left out for a reason: more than 0 is a fault of ours."""
        return self.sampled - self.trained - sum(one.tokens for one in self.left_out.values())

    @property
    def masked(self) -> float:
        """The share of the sequences' tokens that is only context."""
        return 1 - self.trained / self.ours.tokens if self.ours.tokens else 0.0


def examine(
    reader: Reader, session: Session, purposes: Collection[str] = DEFAULT_PURPOSES, renderer: Renderer | None = None
) -> Readiness:
    """Examine one session, as training on `purposes` sees it."""
    turns = reader.turns(session, tokens=True)
    numbers = {turn.id: number for number, turn in enumerate(turns, 1)}
    left_out: dict[str, LeftOut] = {}
    reasons = reasons_not_trained(turns, purposes)
    trainable = {turn.id: turn for turn in turns if reasons[turn.id] is None and turn.n_sampled}
    for turn in turns:
        reason = reasons[turn.id]
        if reason is not None and (turn.n_sampled or turn.status != "complete"):
            entry = left_out.setdefault(reason, LeftOut())
            entry.tokens += turn.n_sampled
            entry.turns.append(numbers[turn.id])
    found = paths({turn.id: turn.parent_id for turn in turns}, trainable)
    by_id = {turn.id: turn for turn in turns}
    rerendered, refused = _rerendered(reader, turns, trainable, numbers, renderer)
    return Readiness(
        session=session,
        turns=len(turns),
        sampled=sum(turn.n_sampled for turn in turns),
        trained=sum(len(by_id[turn].sampled or ()) for path in found for turn in path.trained),
        ours=Rows(len(found), sum(_length(path, by_id) for path in found)),
        left_out=left_out,
        forks=tuple(_forks(turns, numbers)),
        changed={numbers[t.id]: t.drift_detail for t in turns if t.parent_id is not None and t.drift_detail},
        retries=tuple((numbers[t.id], numbers[t.retry_of]) for t in turns if t.retry_of in numbers),
        exact_prefix=joined([(reader.prompt_ids(turn), turn.sampled or []) for turn in trainable.values()]),
        rerendered=rerendered,
        refused=refused,
    )


def reasons_not_trained(turns: Sequence[Turn], purposes: Collection[str] = DEFAULT_PURPOSES) -> dict[int, str | None]:
    """Why each turn, by id, must not be trained; None where it may. The turns' tokens must be loaded."""
    return {
        turn.id: not_trained(
            status=turn.status, untrainable=turn.untrainable, sampled=turn.n_sampled,
            logprobs=len(turn.logprobs or ()), purpose=turn.purpose, sampling=turn.sampling_sent, purposes=purposes,
        )
        for turn in turns
    }  # fmt: skip


def document(found: Sequence[Readiness]) -> dict[str, Any]:
    """As JSON: `sessions`, and their `totals`."""
    sessions = []
    for one in found:
        fields = {
            "name": one.session.name, "turns": one.turns, "sampled": one.sampled, "trained": one.trained,
            "unexplained": one.unexplained, "sequences": one.ours.rows, "tokens": one.ours.tokens,
            "masked": one.masked, "left_out": {name: asdict(value) for name, value in one.left_out.items()},
            "forks": [asdict(fork) for fork in one.forks],
            "changed": {str(turn): words for turn, words in one.changed.items()},
            "retries": [{"turn": turn, "of": of} for turn, of in one.retries],
            "exact_prefix": asdict(one.exact_prefix),
            "rerendered": None if one.rerendered is None else asdict(one.rerendered),
            "refused": {str(turn): words for turn, words in one.refused.items()},
        }  # fmt: skip
        sessions.append(fields)
    names = ("turns", "sampled", "trained", "unexplained", "sequences", "tokens")
    return {"totals": {name: sum(one[name] for one in sessions) for name in names}, "sessions": sessions}


def view(found: Sequence[Readiness]) -> RenderableType:
    """For the terminal: a line a session, then what is to be known of each, then the comparison."""
    parts: list[RenderableType] = [_overview(found)]
    parts += [
        _details(one) for one in found if one.forks or one.changed or one.left_out or one.retries or one.unexplained
    ]
    parts += [Text(), _comparison(found)]
    return Stack(*parts)


def _length(path: Path, by_id: Mapping[int, Turn]) -> int:
    last = by_id[path.turns[-1]]
    return last.prompt_length + len(last.sampled or ())


def _forks(turns: Sequence[Turn], numbers: Mapping[int, int]) -> list[Fork]:
    found: list[Fork] = []
    continued: set[int] = set()
    for turn in turns:
        if turn.parent_id is None:
            if turn.drift_reason not in _BEGINS:
                found.append(_fork(turn, None, turn.drift_reason or "", numbers))
        elif turn.parent_id in continued:
            found.append(_fork(turn, numbers[turn.parent_id], "continues a turn that was continued before", numbers))
        if turn.parent_id is not None:
            continued.add(turn.parent_id)
    return found


def _fork(turn: Turn, parent: int | None, reason: str, numbers: Mapping[int, int]) -> Fork:
    return Fork(turn=numbers[turn.id], parent=parent, reason=reason, detail=turn.drift_detail, purpose=turn.purpose)


def _rerendered(
    reader: Reader,
    turns: Sequence[Turn],
    trainable: Mapping[int, Turn],
    numbers: Mapping[int, int],
    renderer: Renderer | None,
) -> tuple[Rows | None, dict[int, str]]:
    if renderer is None:
        return None, {}
    histories: dict[int, list[dict[str, Any]]] = {}
    calls: list[tuple[list[int], list[int]]] = []
    refused: dict[int, str] = {}
    alone = Rows(0, 0)
    for turn in turns:
        before = []
        if turn.parent_id is not None:
            reply = reader.reply(turn.parent_id)
            before = [*histories[turn.parent_id], *([reply] if reply is not None else [])]
        histories[turn.id] = [*before, *reader.new_messages(turn)]
        if turn.id not in trainable:
            continue
        try:
            calls.append((renderer.prompt(histories[turn.id], reader.tools(turn)), turn.sampled or []))
        except Refused as words:
            refused[numbers[turn.id]] = str(words)
            alone = Rows(alone.rows + 1, alone.tokens + turn.prompt_length + turn.n_sampled)
    rows = joined(calls)
    return Rows(rows.rows + alone.rows, rows.tokens + alone.tokens), refused


def _overview(found: Sequence[Readiness]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("session", overflow="fold", min_width=12)
    for header in ("turns", "seqs", "sampled", "trained", "left out", "unexplained", "masked", "forks", "retries"):
        table.add_column(header, justify="right", no_wrap=True)
    for one in found:
        share = f"{one.trained:,} ({one.trained / one.sampled:.1%})" if one.sampled else "-"
        table.add_row(
            Text(one.session.name, "bold"), f"{one.turns:,}", f"{one.ours.rows:,}", f"{one.sampled:,}", share,
            f"{sum(o.tokens for o in one.left_out.values()):,}",
            Text(f"{one.unexplained:,}", "bold red" if one.unexplained else "green"),
            f"{one.masked:.1%}", f"{len(one.forks)}", f"{len(one.retries)}",
        )  # fmt: skip
    return table


def _details(one: Readiness) -> Text:
    text = Text(f"\n{one.session.name}", "bold")
    for fork in one.forks:
        where = f" of #{fork.parent}" if fork.parent is not None else ""
        text.append(f"\n  fork #{fork.turn}{where} ({fork.purpose}): ", "yellow").append(visible(fork.reason))
        if fork.detail:
            text.append(f": {visible(fork.detail)}", "dim")
    for number, words in one.changed.items():
        text.append(f"\n  changed before #{number}: ", "yellow").append(visible(words))
    for reason, entry in one.left_out.items():
        turns = ", ".join(f"#{number}" for number in entry.turns)
        text.append(f"\n  not trained: {visible(reason)}", "red").append(f"  {entry.tokens:,} tokens in {turns}")
    for turn, of in one.retries:
        text.append(f"\n  #{turn} is a retry of #{of}")
    if one.unexplained:
        text.append(f"\n  {one.unexplained:,} sampled tokens are neither trained nor left out: please report", "red")
    return text


def _comparison(found: Sequence[Readiness]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in ("rows made by", "rows", "tokens", "against ours"):
        table.add_column(header, justify="left" if header == "rows made by" else "right")
    ours = sum(one.ours.tokens for one in found)
    ways: dict[str, list[Rows | None]] = {
        "the record (ours)": [one.ours for one in found],
        "exact prefix of stored ids": [one.exact_prefix for one in found],
        "re-rendering every turn": [one.rerendered for one in found],
    }
    for name, rows in ways.items():
        known = [row for row in rows if row is not None]
        if len(known) < len(rows):
            table.add_row(name, "not computed", "give --tokenizer MODEL_DIR", "")
            continue
        tokens = sum(row.tokens for row in known)
        factor = f"x{tokens / ours:.2f}" if ours else "-"
        table.add_row(name, f"{sum(row.rows for row in known):,}", f"{tokens:,}", factor)
    for one in found:
        for turn, words in one.refused.items():
            table.add_row(Text(f"{one.session.name} #{turn}: the template refuses it: {visible(words)}", "dim"))
    return table
