"""What a policy is worth: solved tasks by harness, with intervals, from the sessions of a run.

Sessions of one task are no independent draws of the world, tasks are: intervals resample tasks (bootstrap, 95 %). Where
every task was tried once that would be blind at 0 and at 1, so there it is Wilson's interval.

An experiment that was run with several seeds has each task once a seed, and these cells of task and seed are what is
resampled. They are not quite independent, since a task is as hard under every seed and the cells of a seed share one
policy: look at the seeds one by one, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from replay.reader import Reader
from replay.rewards import Rollout, rollouts
from replay.schema import Session

RESAMPLES = 2000
_Z = 1.959964
ALL = "all"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One harness (or all of them) over the tasks of a run.

    `solved` is the mean over tasks of the share of their sessions that solved them. `unscored` sessions are in no
    figure. `calls` are tool calls per solved session (median), None where nothing was solved; `tokens` sampled per
    session (mean); `truncated` the share of sessions with a turn that ran into its token limit.
    """

    harness: str
    tasks: int
    sessions: int
    unscored: int
    solved: Interval
    calls: float | None
    tokens: float
    truncated: float

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "harness": self.harness,
            "tasks": self.tasks,
            "sessions": self.sessions,
            "unscored": self.unscored,
            "solved": self.solved.value,
            "solved_low": self.solved.low,
            "solved_high": self.solved.high,
            "tool_calls_per_solved": self.calls,
            "tokens_per_session": self.tokens,
            "truncated": self.truncated,
        }


@dataclass(frozen=True, slots=True)
class Run:
    """The sessions of one `trainer rollout --run` or `trainer eval --run`."""

    name: str
    sessions: tuple[tuple[Session, Rollout], ...]

    @classmethod
    def load(cls, reader: Reader, name: str) -> Run:
        """Raises LookupError when the record has no session of that run."""
        sessions = [s for s in reader.sessions(prefix=f"{name}.")[::-1] if s.status != "open"]
        if not sessions:
            raise LookupError(f"no ended session of a run called {name!r} is in the record")
        return cls(name, tuple(zip(sessions, rollouts(reader, sessions), strict=True)))

    @property
    def harnesses(self) -> list[str]:
        """In the order they were run."""
        return list(dict.fromkeys(session.harness or "?" for session, _ in self.sessions))

    def by_task(self, harness: str | None = None) -> dict[tuple[str, str], list[Rollout]]:
        """Scored sessions by task and harness."""
        found: dict[tuple[str, str], list[Rollout]] = {}
        for session, rollout in self.sessions:
            if rollout.task is not None and harness in (None, session.harness or "?"):
                found.setdefault((session.task or "?", session.harness or "?"), []).append(rollout)
        return found

    def score(self, harness: str | None = None) -> Score:
        """Of one harness; None: of all."""
        cells = self.by_task(harness)
        scored = [rollout for cell in cells.values() for rollout in cell]
        total = sum(harness in (None, session.harness or "?") for session, _ in self.sessions)
        solved = [rollout for rollout in scored if rollout.solved]
        return Score(
            harness=harness or ALL,
            tasks=len({task for task, _ in cells}),
            sessions=len(scored),
            unscored=total - len(scored),
            solved=rate([[float(r.solved) for r in cell] for cell in _by_first(cells)]),
            calls=median(r.tool_calls for r in solved) if solved else None,
            tokens=fmean(r.sampled_tokens for r in scored) if scored else math.nan,
            truncated=fmean(r.truncated > 0 for r in scored) if scored else math.nan,
        )

    def scores(self) -> list[Score]:
        """Every harness, then all of them where there are several."""
        scores = [self.score(harness) for harness in self.harnesses]
        return scores if len(scores) == 1 else [*scores, self.score()]


def compare(before: Run, after: Run, harness: str | None = None) -> Interval | None:
    """By how much more is solved after than before, over the tasks and harnesses that both have; None without any.

    Tasks are paired, so that their difficulty does not widen the interval.
    """
    return compare_seeds([(before, after)], harness)


def compare_seeds(seeds: Sequence[tuple[Run, Run]], harness: str | None = None) -> Interval | None:
    """As :func:`compare`, of several seeds, each with its runs before and after; cells of task and seed are paired."""
    cells = [difference for before, after in seeds for difference in _differences(before, after, harness)]
    return _bootstrap(cells, -1.0, 1.0) if cells else None


def compare_calls(seeds: Sequence[tuple[Run, Run]], harness: str | None = None) -> Interval | None:
    """How many more tool calls a solved session makes after than before; None where nothing was solved both times.

    Over the tasks and harnesses that were solved before and after: those that are new may be longer ones.
    """
    cells: list[float] = []
    for before, after in seeds:
        old, new = _calls_of_solved(before, harness), _calls_of_solved(after, harness)
        shared: dict[str, list[float]] = {}
        for key in old.keys() & new.keys():
            shared.setdefault(key[0], []).append(new[key] - old[key])
        cells += [fmean(shared[task]) for task in sorted(shared)]
    return _bootstrap(cells, -math.inf, math.inf) if cells else None


def _calls_of_solved(run: Run, harness: str | None) -> dict[tuple[str, str], float]:
    """Mean tool calls of the solved sessions of each task and harness that has any."""
    solved = {key: [r.tool_calls for r in cell if r.solved] for key, cell in run.by_task(harness).items()}
    return {key: fmean(calls) for key, calls in solved.items() if calls}


def rate_seeds(runs: Sequence[Run], harness: str | None = None) -> Interval:
    """The share that is solved, over the cells of task and seed of `runs`, one a seed."""
    cells = [cell for run in runs for cell in _by_first(run.by_task(harness))]
    return rate([[float(rollout.solved) for rollout in cell] for cell in cells])


def _differences(before: Run, after: Run, harness: str | None) -> list[float]:
    """By how much more of each task is solved, over the harnesses that both tried it in."""
    old, new = before.by_task(harness), after.by_task(harness)
    shared: dict[str, list[float]] = {}
    for key in old.keys() & new.keys():
        difference = fmean(r.solved for r in new[key]) - fmean(r.solved for r in old[key])
        shared.setdefault(key[0], []).append(difference)
    return [fmean(shared[task]) for task in sorted(shared)]


def rate(tasks: Sequence[Sequence[float]]) -> Interval:
    """The mean over tasks of the mean of each, in 0..1, with its interval."""
    if not tasks:
        return Interval(math.nan, math.nan, math.nan)
    means = [fmean(task) for task in tasks]
    if all(len(task) == 1 for task in tasks):
        return wilson(sum(means), len(means))
    return _bootstrap(means, 0.0, 1.0)


def wilson(successes: float, trials: int) -> Interval:
    """Wilson's interval for `successes` of `trials`."""
    share = successes / trials
    scale = 1 + _Z**2 / trials
    centre = (share + _Z**2 / (2 * trials)) / scale
    reach = _Z * math.sqrt(share * (1 - share) / trials + _Z**2 / (4 * trials**2)) / scale
    return Interval(share, max(0.0, centre - reach), min(1.0, centre + reach))


def _bootstrap(values: Sequence[float], lowest: float, highest: float) -> Interval:
    if len(values) == 1:  # one task says nothing of others
        return Interval(values[0], lowest, highest)
    generator = np.random.default_rng(0)
    drawn = generator.choice(np.asarray(values), size=(RESAMPLES, len(values))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(fmean(values), float(low), float(high))


def _by_first(cells: Mapping[tuple[str, str], Sequence[Rollout]]) -> list[list[Rollout]]:
    """Sessions by task, whatever the harness."""
    found: dict[str, list[Rollout]] = {}
    for (task, _), rollouts_ in cells.items():
        found.setdefault(task, []).extend(rollouts_)
    return list(found.values())
