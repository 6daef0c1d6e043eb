"""The pages of training: each batch's rewards and figures over time, and the rows of one."""

from __future__ import annotations

from collections.abc import Sequence

from replay.batches import load_batch
from replay.schema import Batch
from replay.view import charts, queries
from replay.view.asking import Answer, Ask, Page

PAGE = 200
REWARD = "reward"
_FIRST = (REWARD, "entropy", "loss", "gradient_norm", "logprob_gap_mean", "ratio_max", "clip_share", "tokens_trained")
"""The charts that stand first, in this order; then whatever else the batches' figures hold."""


def training(ask: Ask) -> Answer:
    """A chart for each figure, and a table of the batches."""
    engine = ask.reader.store.engine
    found = queries.batches(engine, before=ask.whole("before"), limit=PAGE + 1)
    older = f"/training?before={found[PAGE - 1].id}" if len(found) > PAGE else None
    found = found[:PAGE]
    rewards = queries.rewards(engine, [batch.id for batch in found])
    return Page(
        "training.html",
        {
            "batches": found, "rewards": rewards, "older": older, "charts": _charts(found[::-1], rewards),
            "width": charts.WIDTH, "height": charts.HEIGHT, "left": charts.LEFT, "right": charts.WIDTH - charts.RIGHT,
        },
    )  # fmt: skip


def batch(ask: Ask) -> Answer:
    """The rows of one batch: which turns, with what advantage, or why they were left out."""
    stored = load_batch(ask.reader.store, ask.number("batch"))
    places = queries.places(ask.reader.store.engine, [row.turn_id for row in stored.rows])
    return Page("batch.html", {"batch": stored.batch, "rows": stored.rows, "sessions": places})


def _charts(batches: Sequence[Batch], rewards: dict[int, tuple[int, float | None]]) -> list[charts.Chart]:
    series: dict[str, list[tuple[int, float]]] = {}
    for one in batches:
        _, mean = rewards.get(one.id, (0, None))
        figures = {REWARD: mean, **{name: value for name, value in (one.stats or {}).items() if name != REWARD}}
        for name, value in figures.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                series.setdefault(name, []).append((one.id, float(value)))
    names = [name for name in _FIRST if name in series] + [name for name in series if name not in _FIRST]
    drawn = (charts.chart(name, series[name]) for name in names)
    return [one for one in drawn if one is not None]
