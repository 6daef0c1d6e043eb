"""Pictures of many sessions, by matplotlib where it is installed (`pip install harnesstap[plots]`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replay.schema import Session
from replay.statistics import Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WINDOW = 20
"""Sessions that a moving average of rewards is over."""


def draw(found: Sequence[Figures], sessions: Sequence[Session], folder: Path) -> list[Path]:
    """Write PNG files into `folder`: rewards over time, time to the first token, tokens of a session, forks.

    Raises ValueError when matplotlib is missing.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ValueError(f"plots need matplotlib: install harnesstap[plots] ({error})") from error
    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    names = [_name(one) for one in found]
    return [
        _figure(folder / "rewards.png", "reward, in the order of sessions", lambda axes: _rewards(axes, sessions)),
        _figure(folder / "first_token.png", "seconds to the first token", lambda axes: _boxes(
            axes, names, [one.first_token for one in found])),
        _figure(folder / "tokens.png", "tokens of a session, on average", lambda axes: _tokens(axes, names, found)),
        _figure(folder / "forks.png", "forks and failed calls of a session, on average", lambda axes: _bars(
            axes, names, {"forks": [one.forks / one.sessions for one in found],
                          "failed calls": [one.failed_turns / one.sessions for one in found]})),
    ]  # fmt: skip


def _figure(path: Path, title: str, fill: Any) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    axes.set_title(title)
    fill(axes)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def _rewards(axes: Axes, sessions: Sequence[Session]) -> None:
    """A point a judged session, and the average of the last ones, for each harness."""
    ordered = sorted((one for one in sessions if one.reward is not None), key=lambda one: one.created_at)
    for harness in sorted({one.harness or "-" for one in ordered}):
        rewards = [(at, one.reward or 0.0) for at, one in enumerate(ordered) if (one.harness or "-") == harness]
        places, values = [place for place, _ in rewards], [value for _, value in rewards]
        means = [sum(values[max(0, at - _WINDOW + 1) : at + 1]) / min(at + 1, _WINDOW) for at in range(len(values))]
        [line] = axes.plot(places, means, label=f"{harness}, mean of {_WINDOW}")
        axes.plot(places, values, ".", alpha=0.3, color=line.get_color())
    if ordered:
        axes.legend()


def _boxes(axes: Axes, names: Sequence[str], values: Sequence[Sequence[float]]) -> None:
    kept = [(name, list(one)) for name, one in zip(names, values, strict=True) if one]
    if kept:
        axes.boxplot([one for _, one in kept], orientation="horizontal", showfliers=False)
        axes.set_yticklabels([name for name, _ in kept])


def _tokens(axes: Axes, names: Sequence[str], found: Sequence[Figures]) -> None:
    _bars(axes, names, {
        "prompt, as sent": [one.prompt_tokens / one.sessions for one in found],
        "prompt, new": [one.new_tokens / one.sessions for one in found],
        "sampled": [one.sampled_tokens / one.sessions for one in found],
    })  # fmt: skip
    axes.set_xscale("symlog")


def _bars(axes: Axes, names: Sequence[str], rows: dict[str, list[float]]) -> None:
    height = 0.8 / len(rows)
    for index, (label, values) in enumerate(rows.items()):
        axes.barh([place + index * height for place in range(len(names))], values, height, label=label)
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(names))], labels=list(names))
    axes.invert_yaxis()
    axes.legend()


def _name(one: Figures) -> str:
    return f"{one.harness} {one.version}".removesuffix(" -")
