"""Preference training on recorded sessions, through TRL's DPOTrainer.

TRL tokenises text by itself. Here the tokens are those that were sampled: it is given placeholders for text, and a
collator that puts the recorded sequences in their place, with the completion mask on the sampled tokens only.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from trainer import ranks
from trainer.library import DPOConfig, DPOTrainer
from trainer.offline import OfflineSettings, fit, load_whole
from trainer.policy import Policy, find_checkpoint, load_policy
from trainer.preferences import Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoSettings(OfflineSettings):
    """How preferences are learnt. `beta` holds the policy to where it began."""

    epochs: float = 1.0
    learning_rate: float = 1e-6
    beta: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoReport:
    """What came of it. `accuracy` is the share of pairs in the last logged step that the policy orders rightly."""

    pairs: int
    steps: int
    first_loss: float
    last_loss: float
    accuracy: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Collator:
    """Puts the recorded sequences of B pairs in the place of TRL's placeholders."""

    pairs: Sequence[Pair]
    pad_id: int

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """`input_ids`, `attention_mask` and `completion_mask`, int64 [2B, T]: the chosen, then the rejected."""
        chosen = [self.pairs[row["index"]].chosen for row in rows]
        rejected = [self.pairs[row["index"]].rejected for row in rows]
        sequences = [*chosen, *rejected]
        width = max(len(sequence.ids) for sequence in sequences)
        shape = (len(sequences), width)
        ids = torch.full(shape, self.pad_id, dtype=torch.long)
        real, sampled = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
        for row, sequence in enumerate(sequences):
            length = len(sequence.ids)
            ids[row, :length] = torch.from_numpy(sequence.ids).long()
            real[row, :length] = 1
            sampled[row, :length] = torch.from_numpy(sequence.mask).long()
        return {"input_ids": ids, "attention_mask": real, "completion_mask": sampled}


def prefer(policy: Policy, pairs: Sequence[Pair], settings: DpoSettings, *, logs: Path | None = None) -> DpoReport:
    """Train `policy` on `pairs`, in place; the reference is the policy as it was loaded.

    On several processes the others :func:`stand_by`; pairs that do not fill the last round of an epoch are filled up
    with the first ones of it, as accelerate does.

    Raises ValueError for no pairs, and for a `batch_size` that cannot be dealt out evenly.
    """
    if not pairs:
        raise ValueError("no pairs to learn from")
    settings.arguments(Path())  # before other ranks take part
    with ranks.together((pairs, settings, logs)):
        return _prefer(policy, pairs, settings, logs)


def stand_by(model: str) -> None:
    """On ranks other than 0: help :func:`prefer` there to train `model`. Raises ranks.LeaderFailed."""
    for pairs, settings, logs in ranks.orders():
        _prefer(load_policy(find_checkpoint(model)), pairs, settings, logs)


def _prefer(policy: Policy, pairs: Sequence[Pair], settings: DpoSettings, logs: Path | None) -> DpoReport:
    began = time.monotonic()
    text = ["."] * len(pairs)
    dataset = Dataset.from_dict({"prompt": text, "chosen": text, "rejected": text, "index": list(range(len(pairs)))})
    with tempfile.TemporaryDirectory(prefix="dpo-") as scratch:
        trainer = DPOTrainer(
            model=policy.model,
            # With adapters the reference is the model without them. Else it is whole on every process: under FSDP, TRL
            # splits it without a broadcast from rank 0, which accelerate makes for the policy alone.
            ref_model=load_whole(policy.source).model if settings.lora is None else None,
            args=_config(settings, logs if logs is not None else Path(scratch)),
            train_dataset=dataset,
            data_collator=Collator(pairs, policy.pad_id),
            processing_class=policy.tokenizer,
            peft_config=settings.adapters(),
        )
        fit(policy, trainer, settings.lora)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    return DpoReport(
        pairs=len(pairs),
        steps=trainer.state.global_step,
        first_loss=logged[0]["loss"],
        last_loss=logged[-1]["loss"],
        accuracy=logged[-1]["rewards/accuracies"],
        seconds=time.monotonic() - began,
    )


def _config(settings: DpoSettings, directory: Path) -> DPOConfig:
    return DPOConfig(
        **settings.arguments(directory),
        beta=settings.beta,
        lr_scheduler_type="constant",
        remove_unused_columns=False,  # the collator needs the index
    )
