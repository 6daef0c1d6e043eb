"""Which process computes which part of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from trainer.batches import Credited, bucketed, collate


def share(
    rows: Sequence[Credited], *, token_budget: int, pad_id: int, rank: int = 0, ranks: int = 1
) -> list[dict[str, torch.Tensor]]:
    """The micro-batches that `rank` of `ranks` computes; every rank gets as many, and all together get all rows.

    Each counts the trained tokens of all rows, since those divide the loss. Micro-batches are smaller than
    `token_budget` where otherwise a rank would have none. Dealt out longest first, so that what the ranks compute at
    one time is of like size; a rank that is left over computes an :func:`idle` one, because the ranks meet in each.
    """
    if ranks > 1:
        token_budget = min(token_budget, math.ceil(sum(len(item.row.ids) for item in rows) / ranks))
    buckets = bucketed(rows, token_budget)
    trained = sum(item.row.trained for item in rows)
    mine = [collate(bucket, pad_id=pad_id, trained_in_step=trained) for bucket in buckets[rank::ranks]]
    missing = math.ceil(len(buckets) / ranks) - len(mine)
    return mine + [idle(rows[0], pad_id=pad_id, trained_in_step=trained) for _ in range(missing)]


def idle(like: Credited, *, pad_id: int, trained_in_step: int) -> dict[str, torch.Tensor]:
    """A micro-batch of two tokens, none of them trained: its loss and its gradient are exactly 0."""
    row = replace(
        like.row,
        ids=like.row.ids[:2],
        mask=np.array([False, True]),
        logprobs=np.zeros(2, dtype=np.float32),
        spans=(),
    )
    batch = collate([Credited(row, 0.0)], pad_id=pad_id, trained_in_step=trained_in_step)
    return {**batch, "tool_mask": torch.zeros_like(batch["tool_mask"])}
