"""Pictures of evaluations, by matplotlib where it is installed (`pip install harnesstap[plots]`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.evaluation import Interval, Run
from trainer.summary import Change


def bars(runs: Sequence[Run], path: Path) -> None:
    """Solved share by harness, a bar a run, with 95 % intervals, as an image at `path`.

    Raises ValueError when matplotlib is missing.
    """
    pyplot = _pyplot()
    names = list(dict.fromkeys(score.harness for run in runs for score in run.scores()))
    figure, axes = pyplot.subplots(figsize=(2 + 1.6 * len(names), 4), layout="constrained")
    shown = {run.name.removeprefix("eval-"): {score.harness: score.solved for score in run.scores()} for run in runs}
    _grouped(axes, names, shown)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def changes(found: Sequence[Change], path: Path) -> None:
    """Solved share before and after, by harness, a picture a recipe, as an image at `path`.

    Raises ValueError when matplotlib is missing.
    """
    pyplot = _pyplot()
    recipes = list(dict.fromkeys(change.recipe for change in found))
    names = list(dict.fromkeys(change.harness for change in found))
    size = (2 + 1.4 * len(names), 3 * len(recipes))
    figure, rows = pyplot.subplots(len(recipes), figsize=size, layout="constrained", squeeze=False)
    for axes, recipe in zip(rows[:, 0], recipes, strict=True):
        mine = {change.harness: change for change in found if change.recipe == recipe}
        shown = {
            "before": {name: change.before for name, change in mine.items()},
            "after": {name: change.after for name, change in mine.items()},
        }
        _grouped(axes, names, shown)
        axes.set_title(recipe, loc="left")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ValueError("a plot needs matplotlib: pip install 'harnesstap[plots]'") from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _grouped(axes: Any, names: Sequence[str], series: Mapping[str, Mapping[str, Interval]]) -> None:
    """Beside each other at each name a bar of each series, in per cent."""
    width = 0.8 / len(series)
    for at, (label, values) in enumerate(series.items()):
        shown = [(place, values[name]) for place, name in enumerate(names) if name in values]
        axes.bar(
            [place + (at - (len(series) - 1) / 2) * width for place, _ in shown],
            [100 * solved.value for _, solved in shown],
            width=0.9 * width,
            yerr=[
                [100 * (solved.value - solved.low) for _, solved in shown],
                [100 * (solved.high - solved.value) for _, solved in shown],
            ],
            capsize=3,
            label=label,
        )
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 100)
    axes.set_ylabel("tasks solved, %")
    axes.legend()
