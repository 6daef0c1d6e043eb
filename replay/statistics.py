"""Figures of many sessions, by harness and version: how many, how good, how long, how fast, how often they forked."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text
from sqlalchemy import select

from replay.groups import Overview, chunks
from replay.reader import Reader
from replay.schema import Session, Turn
from replay.show import counted
from replay.tokens import visible

_COLUMNS = (
    Turn.session_id, Turn.purpose, Turn.status, Turn.drift_reason, Turn.retry_of, Turn.untrainable, Turn.n_sampled,
    Turn.received_at, Turn.first_token_at, Turn.done_at,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Figures:
    """Of the sessions of one harness and version. Times are seconds, of calls that sampled something."""

    harness: str
    version: str
    sessions: int = 0
    failed: int = 0
    rewards: list[float] = field(default_factory=list)
    turns: int = 0
    sequences: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    sampled_tokens: int = 0
    forks: int = 0
    """Roots that did not begin a conversation: the harness rewrote one."""
    retries: int = 0
    failed_turns: int = 0
    untrainable: int = 0
    first_token: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    """Tokens a second after the first one."""

    def document(self) -> dict[str, Any]:
        """As JSON, with the lists as quantiles."""
        lists = ("rewards", "first_token", "rates")
        plain = {name: value for name, value in asdict(self).items() if name not in lists}
        return plain | {
            "judged": len(self.rewards),
            "reward_mean": statistics.fmean(self.rewards) if self.rewards else None,
            "first_token_seconds": quantiles(self.first_token),
            "tokens_per_second": quantiles(self.rates),
        }


def figures(reader: Reader, sessions: Sequence[Session]) -> list[Figures]:
    """Figures of `sessions`, most sessions first."""
    found: dict[tuple[str, str], Figures] = {}
    of_session: dict[int, Figures] = {}
    for overview in reader.overview(sessions):
        session = overview.session
        key = (session.harness or "-", session.harness_version or "-")
        one = of_session[session.id] = found.setdefault(key, Figures(harness=key[0], version=key[1]))
        _add_session(one, overview)
    for row in _turns(reader, sessions):
        _add_turn(of_session[row.session_id], row)
    return sorted(found.values(), key=lambda one: (-one.sessions, one.harness, one.version))


def quantiles(values: Sequence[float]) -> dict[str, float] | None:
    """Median and 95th percentile; None of nothing."""
    if not values:
        return None
    if len(values) == 1:
        return {"p50": values[0], "p95": values[0]}
    return {"p50": statistics.median(values), "p95": statistics.quantiles(values, n=20, method="inclusive")[-1]}


def table(found: Sequence[Figures]) -> Table:
    """A row a harness and version."""
    view = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    view.add_column("harness", overflow="fold")
    view.add_column("version", overflow="ellipsis")
    for header in (
        "sessions", "failed", "reward", "judged", "turns", "seqs/session", "prompt", "new", "sampled", "forks",
        "retries", "errors", "first token", "tokens/s",
    ):  # fmt: skip
        view.add_column(header, justify="right", no_wrap=True)
    for one in found:
        view.add_row(
            Text(visible(one.harness), "bold"), visible(one.version), f"{one.sessions:,}", f"{one.failed:,}",
            f"{statistics.fmean(one.rewards):.3f}" if one.rewards else "-", f"{len(one.rewards):,}",
            f"{one.turns:,}", f"{one.sequences / one.sessions:.2f}", _short(one.prompt_tokens), _short(one.new_tokens),
            _short(one.sampled_tokens), f"{one.forks:,}", f"{one.retries:,}", f"{one.failed_turns:,}",
            _spread(one.first_token, " s"), _spread(one.rates, ""),
        )  # fmt: skip
    if len(found) > 1:
        view.caption = counted(sum(one.sessions for one in found), "session")
    return view


def _turns(reader: Reader, sessions: Sequence[Session]) -> Iterator[Any]:
    with reader.store.engine.connect() as connection:
        for ids in chunks([session.id for session in sessions]):
            yield from connection.execute(select(*_COLUMNS).where(Turn.session_id.in_(ids)))


def _add_session(one: Figures, overview: Overview) -> None:
    one.sessions += 1
    one.failed += overview.session.status == "failed"
    if overview.session.reward is not None:
        one.rewards.append(overview.session.reward)
    one.turns += overview.turns
    one.sequences += overview.sequences
    one.prompt_tokens += overview.prompt_tokens
    one.new_tokens += overview.new_tokens
    one.sampled_tokens += overview.sampled_tokens


def _add_turn(one: Figures, turn: Any) -> None:
    one.forks += turn.drift_reason not in (None, "first", "subagent")
    one.retries += turn.retry_of is not None
    one.failed_turns += turn.status == "failed"
    one.untrainable += turn.untrainable is not None
    if turn.n_sampled and turn.first_token_at is not None:
        one.first_token.append(turn.first_token_at - turn.received_at)
        if turn.done_at is not None and turn.n_sampled > 1 and turn.done_at > turn.first_token_at:
            one.rates.append((turn.n_sampled - 1) / (turn.done_at - turn.first_token_at))


def _spread(values: Sequence[float], unit: str) -> str:
    found = quantiles(values)
    return "-" if found is None else f"{_round(found['p50'])} ({_round(found['p95'])}){unit}"


def _round(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _short(number: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if number >= size:
            return f"{number / (1000 if unit == 'k' else size):.1f}{unit}"
    return f"{number:,}"
