"""Finished experiments over their seeds: what is paired, what is averaged, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from replay.reader import Reader
from replay.store import Store
from tests.trainer.test_evaluation import record
from trainer.cli import app
from trainer.evaluation import Run
from trainer.summary import Finished, begin, changes, conclude, markdown

BEFORE, AFTER = "eval-small-0", "eval-small-6"
Results = dict[tuple[str, str], list[float | None]]


def finish(folder: Path, recipe: str, seed: int, before: Results, after: Results) -> Path:
    """A directory as `trainer run` leaves it."""
    begin(folder, recipe, seed)
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
    begin(tmp_path / "begun", "small", 0)
    with pytest.raises(ValueError, match=r"begun has no evaluation\.json: it is unfinished"):
        Finished.load(tmp_path / "begun")
    begin(tmp_path / "begun", "small", 0)
    with pytest.raises(ValueError, match="has a run of recipe small with seed 0, not of small with 1"):
        begin(tmp_path / "begun", "small", 1)
    one = Finished.load(two_seeds[0])
    with pytest.raises(ValueError, match="are both small with seed 1"):
        changes([one, one])
