"""Training rows to micro-batches: rows of like length together, as many as a budget of tokens allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from trainer.sequences import Row


@dataclass(frozen=True, slots=True)
class Credited:
    """A row and the weight of its tokens in the loss: its session's advantage."""

    row: Row
    advantage: float


class MixedTemperatures(ValueError):
    """Rows sampled at different temperatures: one loss can correct for one temperature only."""


def temperature(rows: Sequence[Row]) -> float:
    """The one temperature all trained tokens of `rows` were sampled at; raises MixedTemperatures."""
    found = sorted({span.temperature for row in rows for span in row.spans})
    if len(found) != 1:
        raise MixedTemperatures(f"one batch needs one sampling temperature; these rows have {found}")
    return found[0]


def balanced(rows: Sequence[Credited]) -> list[Credited]:
    """Weigh sessions, not tokens: each session's advantage times total / (sessions * its trained tokens).

    Without it a session weighs in the loss by how many tokens it sampled.
    """
    tokens: dict[int, int] = {}
    for item in rows:
        tokens[item.row.session] = tokens.get(item.row.session, 0) + item.row.trained
    total = sum(tokens.values())
    return [Credited(item.row, item.advantage * total / (len(tokens) * tokens[item.row.session])) for item in rows]


def bucketed(rows: Sequence[Credited], token_budget: int) -> list[list[Credited]]:
    """Micro-batches, longest first, each at most `token_budget` tokens with padding; a longer row is alone.

    Longest first, so that a machine too small for the batch finds out at once.
    """
    if token_budget < 1:
        raise ValueError(f"token_budget must be positive, not {token_budget}")
    batches: list[list[Credited]] = []
    for item in sorted(rows, key=lambda item: len(item.row.ids), reverse=True):
        if batches and len(batches[-1][0].row.ids) * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(item)
        else:
            batches.append([item])
    return batches


def collate(batch: Sequence[Credited], *, pad_id: int, trained_in_step: int) -> dict[str, torch.Tensor]:
    """The inputs of TRL's GRPO loss for B rows, the longest of T tokens.

    The split into prompt [B, P] and completion [B, T - P] is TRL's, not ours: P is the position of the first trained
    token of any row, the same for all rows. So nothing is padded on the left, and every token keeps the position it
    was sampled at, whatever the architecture makes of positions. `tool_mask` is 1 on trained tokens only.
    `num_items_in_batch` counts those of the whole optimizer step.
    """
    lengths = [len(item.row.ids) for item in batch]
    width = max(lengths)
    ids = np.full((len(batch), width), pad_id, dtype=np.int64)
    real = np.zeros((len(batch), width), dtype=np.int64)
    trained = np.zeros((len(batch), width), dtype=np.int64)
    logprobs = np.zeros((len(batch), width), dtype=np.float32)
    for i, item in enumerate(batch):
        end = lengths[i]
        ids[i, :end] = item.row.ids
        real[i, :end] = 1
        trained[i, :end] = item.row.mask
        logprobs[i, :end] = item.row.logprobs
    split = min(int(item.row.mask.argmax()) for item in batch)
    if split < 1:
        raise ValueError("a row begins with a sampled token: it has no prompt")
    return {
        "prompt_ids": torch.from_numpy(ids[:, :split]),
        "prompt_mask": torch.from_numpy(real[:, :split]),
        "completion_ids": torch.from_numpy(ids[:, split:]),
        "completion_mask": torch.from_numpy(real[:, split:]),
        "tool_mask": torch.from_numpy(trained[:, split:]),
        "old_per_token_logps": torch.from_numpy(logprobs[:, split:]),
        "advantages": torch.tensor([item.advantage for item in batch], dtype=torch.float32),
        "num_items_in_batch": torch.tensor(float(trained_in_step)),
    }
