"""From rewards to advantages: one number a session, normalised within its group.

A session is the unit of credit however many training rows it becomes, so nothing here knows of rows or tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Literal

Scale = Literal["std", "none", "batch"]
EPSILON = 1e-4


class NothingToTrain(LookupError):
    """No group in the record can teach anything now; the message says what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A finished session of a group. `reward` None means nobody could tell: it is no zero, and it teaches nothing."""

    session: int
    reward: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What a batch of groups teaches.

    `advantages` maps a session's id to its advantage; a session that is not in it is not trained. The counts say
    where the other groups went.
    """

    advantages: dict[int, float]
    groups_used: int
    groups_flat: int
    groups_small: int
    sessions_unscored: int


def credit(groups: Sequence[Sequence[Scored]], scale: Scale = "std", *, epsilon: float = EPSILON) -> Credit:
    """Advantage (r - mean) / (std + epsilon) of every scored session, `std` with ddof 1.

    `scale="std"` divides by the group's own std, `"batch"` by the std of all scored rewards of the batch, `"none"` by
    nothing. Groups whose rewards are all equal are skipped and counted (`groups_flat`), as are groups with fewer than
    two rewards (`groups_small`).
    """
    if scale not in ("std", "none", "batch"):
        raise ValueError(f"scale must be std, none or batch, not {scale!r}")
    advantages: dict[int, float] = {}
    used = flat = small = unscored = 0
    known = [[(s.session, s.reward) for s in group if s.reward is not None] for group in groups]
    everyone = [reward for group in known for _, reward in group]
    batch_std = stdev(everyone) if len(everyone) > 1 else 0.0
    for group, scored in zip(groups, known, strict=True):
        unscored += len(group) - len(scored)
        rewards = [reward for _, reward in scored]
        if len(rewards) < 2:
            small += 1
            continue
        if min(rewards) == max(rewards):
            flat += 1
            continue
        used += 1
        mean = sum(rewards) / len(rewards)
        divisor = {"std": stdev(rewards) + epsilon, "batch": batch_std + epsilon, "none": 1.0}[scale]
        advantages.update({session: (reward - mean) / divisor for session, reward in scored})
    return Credit(
        advantages=advantages,
        groups_used=used,
        groups_flat=flat,
        groups_small=small,
        sessions_unscored=unscored,
    )
