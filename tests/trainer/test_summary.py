"""Finished experiments over their seeds: what is paired, what is averaged, what is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from replay.reader import Reader
from replay.store import Store
from tests.trainer.test_evaluation import record
from trainer.cli import app
from trainer.display import changes_table
from trainer.evaluation import Run
from trainer.recipe import Evaluation, Recipe, Rollouts, Training
from trainer.results import Finished, begin, conclude
from trainer.summary import changes, markdown

BEFORE, AFTER = "eval-small-0", "eval-small-6"
Results = dict[tuple[str, str], list[float | None]]


def plan(name: str, seed: int, tasks: Path | None = None, **rollouts: Any) -> Recipe:
    return Recipe(
        name=name, model="m", rollouts=Rollouts(tasks=Path("train"), harnesses=("x",), **rollouts),
        training=Training(seed=seed, steps=6), evaluation=Evaluation(tasks=tasks),
    )  # fmt: skip


def finish(folder: Path, recipe: str, seed: int, before: Results, after: Results) -> Path:
    """A directory as `trainer run` leaves it."""
    begin(folder, plan(recipe, seed))
    with Store.open(f"sqlite:///{folder / 'harnesstap.db'}") as store:
        record(store, BEFORE, before)
        record(store, AFTER, after)
        conclude(folder, [Run.load(Reader(store), name) for name in (BEFORE, AFTER)])
    return folder


def solved(harness: str, *tasks: bool) -> Results:
    return {(f"t{at}", harness): [float(done)] for at, done in enumerate(tasks)}


@pytest.fixture
def two_seeds(tmp_path: Path) -> list[Path]:
    base = solved("x", True, False, False, False) | solved("y", False, False, False, False)
    better = solved("x", True, True, False, False) | solved("y", True, True, False, False)
    return [
        finish(tmp_path / "one", "small", 1, base, better),
        finish(tmp_path / "zero", "small", 0, base, base | {("t9", "x"): [1.0], ("t3", "y"): [None]}),
    ]


def test_seeds_are_paired_task_by_task(two_seeds: list[Path]) -> None:
    x, y, both = changes([Finished.load(folder) for folder in two_seeds])
    assert [one.harness for one in (x, y, both)] == ["x", "y", "all"]
    assert {one.seeds for one in (x, y, both)} == {(0, 1)}
    assert (x.before.value, x.after.value) == (0.25, pytest.approx(4 / 9)), "nine cells after, one of them new"
    assert x.by_seed == (0.0, 0.25)
    assert x.difference is not None
    assert x.difference.value == pytest.approx(1 / 8), "the new task has no pair"
    assert 0.0 <= x.difference.low < 1 / 8 < x.difference.high < 0.5
    assert y.by_seed == (0.0, 0.5)
    assert (y.sessions, y.unscored) == (15, 1)
    assert both.difference is not None
    assert both.difference.value == pytest.approx((0.25 + 0.5) / 2 / 2), "harnesses of a task are one cell"
    assert both.sessions == x.sessions + y.sessions


def test_more_seeds_are_more_cells(tmp_path: Path) -> None:
    before, after = solved("x", *[False] * 10), solved("x", *[True] * 5, *[False] * 5)
    widths = []
    for count in (1, 4):
        folders = [finish(tmp_path / f"{count}-{seed}", "small", seed, before, after) for seed in range(count)]
        [found] = changes([Finished.load(folder) for folder in folders])
        assert found.difference is not None
        assert found.difference.value == 0.5
        widths.append(found.difference.high - found.difference.low)
        assert found.by_seed == (0.5,) * count
    assert widths[1] < 0.6 * widths[0]


def test_calls_are_those_of_solved_sessions(tmp_path: Path) -> None:
    folder = finish(tmp_path / "one", "small", 0, solved("x", True, False), solved("x", False, False))
    [found] = changes([Finished.load(folder)])
    assert (found.calls_before, found.calls_after) == (0.0, None)
    assert "| 0.00 → - |" in markdown([found])


def test_the_command_shows_writes_and_draws(two_seeds: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="harnesstap[plots] is not installed")
    other = finish(tmp_path / "other", "other", 0, solved("x", False, True), solved("x", True, True))
    table, plot = tmp_path / "table.md", tmp_path / "plot.png"
    arguments = ["summary", *map(str, [*two_seeds, other]), "--markdown", str(table), "--plot", str(plot)]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    lines = table.read_text().splitlines()
    assert lines[0].startswith("| recipe | harness | solved, % |")
    assert lines[2].startswith("| small | x | 25.0 → 44.4 | +12.5 (")
    assert "| +0.0, +25.0 |" in lines[2]
    assert [line.split(" | ")[:2] for line in lines[2:6]] == [
        *(["| small", "x"], ["| small", "y"], ["| small", "all"], ["| other", "x"])
    ]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "resamples" in table.read_text()


def test_what_is_no_finished_experiment_is_named(two_seeds: list[Path], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere is no directory of `trainer run`: it has no run\.json"):
        Finished.load(tmp_path / "nowhere")
    begin(tmp_path / "begun", plan("small", 0))
    with pytest.raises(ValueError, match=r"begun has no evaluation\.json: it is unfinished"):
        Finished.load(tmp_path / "begun")
    begin(tmp_path / "begun", plan("small", 0))
    with pytest.raises(ValueError, match="has a run of recipe small with seed 0, not of small with 1"):
        begin(tmp_path / "begun", plan("small", 1))
    one = Finished.load(two_seeds[0])
    with pytest.raises(ValueError, match="are both small with seed 1"):
        changes([one, one])


@pytest.mark.parametrize("width", [80, 160])
def test_figures_stay_in_one_piece_however_narrow_the_terminal(two_seeds: list[Path], width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    found = changes([Finished.load(folder) for folder in two_seeds])
    console.print(changes_table(found, console.width))
    text = console.export_text()
    assert "25.0 → 44.4" in text
    assert "+12.5 (" in text
    assert ("seeds" in text) == (width == 160)


def task_set(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "prompt.md").write_text("Do it\n")
        (folder / name / "verify.sh").write_text("#!/bin/sh\n")
        (folder / name / "verify.sh").chmod(0o755)
    return folder


def test_a_baseline_is_measured_once(tmp_path: Path) -> None:
    tasks = task_set(tmp_path / "tasks", "t0", "t1")
    first, second = tmp_path / "first", tmp_path / "second"
    assert begin(first, plan("small", 0, tasks)) is None
    with Store.open(f"sqlite:///{first / 'harnesstap.db'}") as store:
        record(store, BEFORE, solved("x", True, False))
    before = begin(second, plan("other", 0, tasks), first)
    assert before is not None
    assert before.score().solved.value == 0.5
    with Store.open(f"sqlite:///{second / 'harnesstap.db'}") as store:
        record(store, "eval-other-6", solved("x", True, True))
        conclude(second, [before, Run.load(Reader(store), "eval-other-6")])
    [change] = changes([Finished.load(second)])
    assert (change.before.value, change.after.value) == (0.5, 1.0)
    with pytest.raises(ValueError, match="began with the baseline"):
        begin(second, plan("other", 0, tasks))
    with pytest.raises(ValueError, match=r"has its own baseline in .*first: name that"):
        begin(tmp_path / "third", plan("third", 0, tasks), second)


def test_a_baseline_of_something_else_or_unfinished_is_refused(tmp_path: Path) -> None:
    tasks = task_set(tmp_path / "tasks", "t0", "t1")
    first = tmp_path / "first"
    begin(first, plan("small", 0, tasks))
    with Store.open(f"sqlite:///{first / 'harnesstap.db'}") as store:
        record(store, BEFORE, solved("x", True))
    with pytest.raises(ValueError, match="is no baseline for this recipe: max_tokens is 512 there, 64 here"):
        begin(tmp_path / "second", plan("other", 0, tasks, max_tokens=64), first)
    with pytest.raises(ValueError, match="has made 1 of the 2 sessions of its first evaluation"):
        begin(tmp_path / "second", plan("other", 0, tasks), first)
    assert not (tmp_path / "second").exists()
