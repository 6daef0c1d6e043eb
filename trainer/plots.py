"""Pictures of evaluations, by matplotlib where it is installed (`pip install harnesstap[plots]`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainer.evaluation import Run


def bars(runs: Sequence[Run], path: Path) -> None:
    """Solved share by harness, a bar a run, with 95 % intervals, as an image at `path`.

    Raises ValueError when matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ValueError("a plot needs matplotlib: pip install 'harnesstap[plots]'") from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(score.harness for run in runs for score in run.scores()))
    figure, axes = pyplot.subplots(figsize=(2 + 1.6 * len(names), 4), layout="constrained")
    width = 0.8 / len(runs)
    for at, run in enumerate(runs):
        scores = {score.harness: score.solved for score in run.scores()}
        shown = [(place, scores[name]) for place, name in enumerate(names) if name in scores]
        axes.bar(
            [place + (at - (len(runs) - 1) / 2) * width for place, _ in shown],
            [100 * solved.value for _, solved in shown],
            width=0.9 * width,
            yerr=[
                [100 * (solved.value - solved.low) for _, solved in shown],
                [100 * (solved.high - solved.value) for _, solved in shown],
            ],
            capsize=3,
            label=run.name.removeprefix("eval-"),
        )
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 100)
    axes.set_ylabel("tasks solved, %")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
