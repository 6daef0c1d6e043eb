"""What finished experiments came to, over their seeds: each recipe in each harness, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from trainer.evaluation import ALL, Interval, Run, compare, compare_calls, compare_seeds, rate_seeds
from trainer.results import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One recipe in one harness, or in all of them, over its seeds.

    `before` and `after` are shares of solved tasks; `difference` is after less before, over the cells of task and seed
    that both have (None: there are none), `by_seed` the same of each seed. Calls are the mean tool calls of a session
    that solved its task, None where none did; `calls_difference` is over the tasks that were solved before and after.
    `sessions` counts scored ones, before and after together.
    """

    recipe: str
    harness: str
    seeds: tuple[int, ...]
    sessions: int
    unscored: int
    before: Interval
    after: Interval
    difference: Interval | None
    by_seed: tuple[float | None, ...]
    calls_before: float | None
    calls_after: float | None
    calls_difference: Interval | None


def changes(finished: Sequence[Finished]) -> list[Change]:
    """Of every recipe its harnesses, then all of them. Raises ValueError where a recipe has a seed twice."""
    recipes: dict[str, list[Finished]] = {}
    for one in finished:
        for other in recipes.setdefault(one.recipe, []):
            if other.seed == one.seed:
                raise ValueError(f"{one.directory} and {other.directory} are both {one.recipe} with seed {one.seed}")
        recipes[one.recipe].append(one)
    found = []
    for recipe, runs in recipes.items():
        seeds = sorted(runs, key=lambda one: one.seed)
        harnesses = dict.fromkeys(name for one in seeds for name in one.after.harnesses)
        rows: list[str | None] = [*harnesses]
        found += [_change(recipe, seeds, harness) for harness in (rows if len(rows) == 1 else [*rows, None])]
    return found


def _change(recipe: str, seeds: Sequence[Finished], harness: str | None) -> Change:
    pairs = [(one.before, one.after) for one in seeds]
    before, after = [one.before for one in seeds], [one.after for one in seeds]
    scores = [run.score(harness) for run in (*before, *after)]
    single = [compare(old, new, harness) for old, new in pairs]
    return Change(
        recipe=recipe,
        harness=harness or ALL,
        seeds=tuple(one.seed for one in seeds),
        sessions=sum(score.sessions for score in scores),
        unscored=sum(score.unscored for score in scores),
        before=rate_seeds(before, harness),
        after=rate_seeds(after, harness),
        difference=compare_seeds(pairs, harness),
        by_seed=tuple(None if one is None else one.value for one in single),
        calls_before=_calls(before, harness),
        calls_after=_calls(after, harness),
        calls_difference=compare_calls(pairs, harness),
    )


def _calls(runs: Sequence[Run], harness: str | None) -> float | None:
    cells = [cell for run in runs for cell in run.by_task(harness).values()]
    calls = [rollout.tool_calls for cell in cells for rollout in cell if rollout.solved]
    return fmean(calls) if calls else None


_HEADS = (
    "recipe",
    "harness",
    "solved, %",
    "difference, points",
    "by seed",
    "calls if solved",
    "difference, calls",
    "sessions",
    "seeds",
)


def rows(changes: Sequence[Change]) -> list[tuple[str, ...]]:
    """As lines of a table, the first its heads."""
    lines: list[tuple[str, ...]] = [_HEADS]
    for one in changes:
        unscored = f" + {one.unscored} unscored" if one.unscored else ""
        lines.append(
            (
                one.recipe,
                one.harness,
                f"{100 * one.before.value:.1f} → {100 * one.after.value:.1f}",
                "-" if one.difference is None else _points(one.difference),
                ", ".join("-" if value is None else f"{100 * value:+.1f}" for value in one.by_seed),
                " → ".join("-" if calls is None else f"{calls:.2f}" for calls in (one.calls_before, one.calls_after)),
                "-" if one.calls_difference is None else _count(one.calls_difference),
                f"{one.sessions}{unscored}",
                " ".join(map(str, one.seeds)),
            )
        )
    return lines


def markdown(changes: Sequence[Change]) -> str:
    """The table in Markdown, with what its figures are."""
    heads, *lines = rows(changes)
    table = [heads, tuple("---" if at < 2 else "---:" for at in range(len(heads))), *lines]
    note = (
        "Solved is the mean over tasks and seeds, before → after training, on tasks that are not trained on. The "
        "difference has a 95 % bootstrap interval that resamples pairs (before, after) of task and seed; all harnesses "
        "of a task stay together. Calls are the mean tool calls of sessions that solved their task, their difference "
        "that of the tasks solved before and after."
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in table) + f"\n\n{note}\n"


def _count(found: Interval) -> str:
    return f"{found.value:+.2f} ({found.low:+.2f} .. {found.high:+.2f})"


def _points(found: Interval) -> str:
    return f"{100 * found.value:+.1f} ({100 * found.low:+.1f} .. {100 * found.high:+.1f})"
