"""The figures of one step: the same in metrics.jsonl, in the record's batch and wherever it is reported to."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from replay.schema import Session
from trainer.selection import Lag, Selection

if TYPE_CHECKING:  # torch comes with it
    from trainer.metrics import StepMetrics


def figures(metrics: StepMetrics, selection: Selection, *, current: int) -> dict[str, float]:
    """All that a step can be judged by, flat, by name; `current` is the weight version it was made from.

    Beside the metrics of the update: `reward_*` of the scored sessions, with `solved` their share whose task's own
    reward is above 0 and a `reward_part_*` for each term that the record keeps apart; `advantage_*` of the trained
    sessions; where the groups went; `lag_*`, by how many weight versions the trained tokens are older than `current`
    (`lag_unknown` of them cannot be told); `turns_trained`; and tokens a second of the update: trained ones, and all
    of the rows with their prompts.
    """
    credit, rows = selection.credit, selection.rows
    processed = sum(len(item.row.ids) for item in rows)
    return {
        **asdict(metrics),
        **_rewards([session for group in selection.groups for session in group.sessions]),
        **_spread("advantage", list(credit.advantages.values())),
        "groups_used": credit.groups_used,
        "groups_flat": credit.groups_flat,
        "groups_small": credit.groups_small,
        "sessions_unscored": credit.sessions_unscored,
        "turns_trained": len({span.turn for item in rows for span in item.row.spans}),
        "tokens_left_out": selection.left_out.total(),
        "tokens_processed": processed,
        "tokens_per_second": metrics.tokens_trained / metrics.seconds,
        "tokens_processed_per_second": processed / metrics.seconds,
        **_lag(selection.lag(current)),
    }


def _rewards(sessions: list[Session]) -> dict[str, float]:
    scored = [(one.reward, _parts(one)) for one in sessions if one.reward is not None]
    found = {"sessions": float(len(sessions)), **_spread("reward", [reward for reward, _ in scored])}
    if scored:
        found["solved"] = fmean(parts.get("task", reward) > 0 for reward, parts in scored)
    for name in dict.fromkeys(name for _, parts in scored for name in parts):
        # Terms are `+NAME` in the record.
        found[f"reward_part_{name.removeprefix('+')}"] = fmean(parts[name] for _, parts in scored if name in parts)
    return found


def _parts(session: Session) -> dict[str, float]:
    parts = session.reward_parts or {}
    return {name: float(value) for name, value in parts.items() if isinstance(value, int | float)}


def _spread(name: str, values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    return {
        f"{name}_mean": fmean(values),
        f"{name}_std": pstdev(values),
        f"{name}_min": min(values),
        f"{name}_max": max(values),
    }


def _lag(lag: Lag) -> dict[str, float]:
    if lag.mean is None or lag.max is None:
        return {"lag_unknown": lag.unknown}
    return {"lag_mean": lag.mean, "lag_max": lag.max, "lag_unknown": lag.unknown}
