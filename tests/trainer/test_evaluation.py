"""Evaluations from the record: shares, intervals, differences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from replay.reader import Reader
from replay.records import NewSession
from replay.rewards import Rollout
from replay.schema import Session
from replay.store import Store
from replay.writer import Recorder
from trainer.display import differences_table, scores_table
from trainer.evaluation import Run, compare, compare_calls, rate, wilson
from trainer.plots import bars


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        yield store


def record(store: Store, run: str, results: dict[tuple[str, str], list[float | None]]) -> None:
    """Sessions of a run: rewards by task and harness."""
    with Recorder(store) as recorder:
        for (task, harness), rewards in results.items():
            for index, reward in enumerate(rewards):
                name = f"{run}.{task}.{harness}.{index}"
                recorder.open_session(NewSession(name=name, task=task, harness=harness)).result()
                recorder.score(name, reward, status="failed" if reward is None else "done").result()


def test_wilsons_interval() -> None:
    found = wilson(8, 10)
    assert (round(found.low, 4), found.value, round(found.high, 4)) == (0.4902, 0.8, 0.9433)
    assert wilson(0, 10).low == 0.0
    assert wilson(0, 10).high == pytest.approx(0.2775, abs=1e-4)
    assert wilson(10, 10).high == pytest.approx(1.0)


def test_several_sessions_a_task_are_no_more_tasks() -> None:
    once = rate([[1.0], [0.0]] * 10)
    often = rate([[1.0] * 50, [0.0] * 50] * 10)
    assert often.value == once.value == 0.5
    assert often.high - often.low > 0.3
    assert rate([[1.0, 0.0]]).low == 0.0
    assert math.isnan(rate([]).value)


def test_what_was_not_scored_is_in_no_figure(store: Store) -> None:
    record(store, "eval-a", {("t1", "x"): [1.0, None], ("t2", "x"): [0.0, 0.0], ("t1", "y"): [None]})
    run = Run.load(Reader(store), "eval-a")
    assert run.harnesses == ["x", "y"]
    x = run.score("x")
    assert (x.tasks, x.sessions, x.unscored, x.solved.value) == (2, 3, 1, 0.5)
    assert (x.calls, x.tokens) == (0, 0.0)
    y = run.score("y")
    assert (y.sessions, y.unscored, y.calls) == (0, 1, None)
    assert [score.harness for score in run.scores()] == ["x", "y", "all"]
    with pytest.raises(LookupError, match="no ended session of a run called 'b'"):
        Run.load(Reader(store), "b")


def test_differences_pair_tasks(store: Store) -> None:
    before: dict[tuple[str, str], list[float | None]] = {(f"t{i}", "x"): [float(i < 5)] for i in range(10)}
    after: dict[tuple[str, str], list[float | None]] = {
        (f"t{i}", "x"): [float(i < 8)] for i in range(12)
    }  # two of them are new
    record(store, "eval-before", before)
    record(store, "eval-after", after)
    one, other = (Run.load(Reader(store), name) for name in ("eval-before", "eval-after"))
    found = compare(one, other)
    assert found is not None
    assert found.value == pytest.approx(0.3)
    assert 0.0 <= found.low < 0.3 < found.high <= 0.6
    same = compare(one, one)
    assert same is not None
    assert (same.low, same.value, same.high) == (0.0, 0.0, 0.0)
    record(store, "eval-else", {("other", "x"): [1.0]})
    assert compare(one, Run.load(Reader(store), "eval-else")) is None
    console = Console(width=160, record=True)
    console.print(scores_table([one, other]), differences_table(one, other))
    text = console.export_text()
    assert "50.0 (24-76) %" in text
    assert "+30.0 (" in text


def test_a_plot_is_drawn(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="harnesstap[plots] is not installed")
    record(store, "eval-before", {("t1", "x"): [1.0], ("t2", "x"): [0.0], ("t1", "y"): [None]})
    record(store, "eval-after", {("t1", "x"): [1.0], ("t2", "x"): [1.0]})
    runs = [Run.load(Reader(store), name) for name in ("eval-before", "eval-after")]
    bars(runs, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def called(calls: dict[tuple[str, str], int | None]) -> Run:
    """One session for each task and harness, with so many tool calls; None: not solved."""
    found = []
    for (task, harness), count in calls.items():
        rollout = Rollout(
            session=task, harness=harness, task=float(count is not None), parts={}, turns=1, tool_calls=count or 9,
            sampled_tokens=1, truncated=0, malformed=0, replies=(),
        )  # fmt: skip
        found.append((Session(name=task, task=task, harness=harness), rollout))
    return Run("eval", tuple(found))


def test_calls_are_compared_where_both_solved() -> None:
    before = called({("a", "x"): 4, ("b", "x"): 6, ("c", "x"): None, ("a", "y"): 3})
    after = called({("a", "x"): 2, ("b", "x"): None, ("c", "x"): 1, ("a", "y"): 3})
    found = compare_calls([(before, after)])
    assert found is not None
    assert (found.value, found.low, found.high) == (-1.0, -math.inf, math.inf), "one task, in two harnesses"
    again = compare_calls([(before, after), (called({("a", "x"): 5}), called({("a", "x"): 2}))], "x")
    assert again is not None
    assert (again.value, again.low, again.high) == (-2.5, -3.0, -2.0), "a cell a seed"
    assert compare_calls([(before, called({("a", "x"): None}))]) is None
