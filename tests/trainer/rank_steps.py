"""What the processes of tests/trainer/test_ranks.py run: steps of plain SGD, so that the weights move by the gradient.

    python -m tests.trainer.rank_steps CHECKPOINT RESULT [die | nan | bf16]

RESULT gets what :func:`take` gives. With `die`, rank 1 is killed when the first step begins; with `nan`, the loss of
its first micro-batch is not a number; with `bf16` it is computed in that, and the steps are of AdamW and small.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.trainer.test_grpo import example
from trainer import ranks
from trainer.batches import Credited
from trainer.grpo import Learner, Settings, stand_by
from trainer.policy import load_policy


def learner(checkpoint: Path) -> Learner:
    made = Learner(load_policy(checkpoint), Settings(token_budget=64, max_grad_norm=1e9, gradient_checkpointing=True))
    made.optimizer = torch.optim.SGD(made.policy.model.parameters(), lr=0.1)
    return made


def careful(checkpoint: Path) -> Learner:
    return Learner(load_policy(checkpoint), Settings(token_budget=64, bf16=True, learning_rate=1e-6))


def steps(checkpoint: Path) -> list[list[Credited]]:
    """Four rows in three micro-batches, one row alone, and two: none for a rank, and as many for each."""
    rows = example(checkpoint, noise=0.3)
    return [rows, rows[2:3], rows[:2]]


def with_nan(rows: list[Credited]) -> list[Credited]:
    """`rows` with a logprob that is no number in the second longest: rank 1 computes it."""
    broken = sorted(rows, key=lambda item: len(item.row.ids))[-2].row
    logprobs = np.where(broken.mask, np.nan, 0).astype(np.float32)
    return [replace(item, row=replace(broken, logprobs=logprobs)) if item.row is broken else item for item in rows]


def take(made: Learner, checkpoint: Path) -> list[tuple[dict[str, torch.Tensor], dict[str, Any]]]:
    """The weights after each step, and its metrics."""
    found = []
    for rows in steps(checkpoint):
        metrics = made.step(rows)
        weights = {name: tensor.detach().clone() for name, tensor in made.policy.model.named_parameters()}
        found.append((weights, asdict(metrics)))
    return found


def die() -> Learner:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


if __name__ == "__main__":
    checkpoint, result = Path(sys.argv[1]), Path(sys.argv[2])
    make = careful if "bf16" in sys.argv else learner
    with ranks.joined():
        if ranks.rank() == 0 and "nan" in sys.argv:
            learner(checkpoint).step(with_nan(steps(checkpoint)[0]))
        elif ranks.rank() == 0:
            torch.save(take(make(checkpoint), checkpoint), result)
        else:
            stand_by(die if "die" in sys.argv else lambda: make(checkpoint))
