"""A price for replies whose tool call could not be read: `weight` times their share of the session's turns.

A price, not a prize: whatever is paid for merely handing something in is learnt first, and instead of the task.
"""

from replay.rewards import Rollout


def reward(group: list[Rollout], weight: float = 0.1) -> list[dict[str, float]]:
    return [{"format": -weight * r.malformed / max(1, r.turns)} for r in group]
