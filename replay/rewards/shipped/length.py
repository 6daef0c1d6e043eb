"""A price for sampled tokens above a budget, and for turns that ran into their token limit.

Nothing up to `budget` tokens a session; from there on evenly more, `weight` at twice the budget, and never more than
that. Each truncated turn costs `truncated`.
"""

from replay.rewards import Rollout


def reward(
    group: list[Rollout], budget: float = 2000, weight: float = 0.1, truncated: float = 0.05
) -> list[dict[str, float]]:
    def price(r: Rollout) -> float:
        over = max(0, r.sampled_tokens - budget) / budget
        return -weight * min(1.0, over) - truncated * r.truncated

    return [{"length": price(r)} for r in group]
