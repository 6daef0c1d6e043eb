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
from transformers import PrinterCallback

from trainer.library import DPOConfig, DPOTrainer
from trainer.offline import OfflineSettings, take_back
from trainer.policy import Policy, load_policy
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
    main_process: bool


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

    Raises ValueError for no pairs.
    """
    if not pairs:
        raise ValueError("no pairs to learn from")
    began = time.monotonic()
    text = ["."] * len(pairs)
    dataset = Dataset.from_dict({"prompt": text, "chosen": text, "rejected": text, "index": list(range(len(pairs)))})
    with tempfile.TemporaryDirectory(prefix="dpo-") as scratch:
        trainer = DPOTrainer(
            model=policy.model,
            # With adapters the reference is the model without them.
            ref_model=load_policy(policy.source).model if settings.lora is None else None,
            args=_config(settings, logs if logs is not None else Path(scratch)),
            train_dataset=dataset,
            data_collator=Collator(pairs, policy.pad_id),
            processing_class=policy.tokenizer,
            peft_config=settings.adapters(),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    take_back(policy, trainer, adapted=settings.lora is not None)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    return DpoReport(
        pairs=len(pairs),
        steps=trainer.state.global_step,
        first_loss=logged[0]["loss"],
        last_loss=logged[-1]["loss"],
        accuracy=logged[-1]["rewards/accuracies"],
        seconds=time.monotonic() - began,
        main_process=trainer.accelerator.is_main_process,
    )


def _config(settings: DpoSettings, directory: Path) -> DPOConfig:
    return DPOConfig(
        **settings.arguments(directory),
        beta=settings.beta,
        gradient_accumulation_steps=max(1, settings.batch_size // settings.micro_batch),
        lr_scheduler_type="constant",
        remove_unused_columns=False,  # the collator needs the index
    )
