"""What training on stored sessions has in common, whichever of TRL's trainers does it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.adapters import Lora
from trainer.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSettings:
    """`batch_size` examples (or pairs) make one optimizer step, `micro_batch` of them at a time.

    `bf16` None means bfloat16 autocast on a GPU and float32 on CPU. `reports` names where TRL reports to (tensorboard,
    trackio, wandb, ...), beside what is returned.
    """

    epochs: float
    learning_rate: float
    batch_size: int = 8
    micro_batch: int = 1
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = True
    bf16: bool | None = None
    lora: Lora | None = None
    seed: int = 0
    reports: str = "none"

    def arguments(self, directory: Path) -> dict[str, Any]:
        """As keyword arguments of a TRL config that writes to `directory`; nothing is cut, nothing saved."""
        return {
            "output_dir": str(directory),
            "num_train_epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "per_device_train_batch_size": self.micro_batch,
            "max_grad_norm": self.max_grad_norm,
            "gradient_checkpointing": self.gradient_checkpointing,
            "bf16": torch.cuda.is_available() if self.bf16 is None else self.bf16,
            "max_length": None,  # TRL's default cuts at 1,024 tokens without a word
            "seed": self.seed,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": self.reports,
            "disable_tqdm": True,
            "dataloader_pin_memory": torch.cuda.is_available(),
        }

    def adapters(self) -> Any:
        """PEFT's configuration, None for all weights."""
        return None if self.lora is None else self.lora.config()


def take_back(policy: Policy, trainer: Any, *, adapted: bool) -> None:
    """Make what `trainer` trained the policy's model again, without what TRL and accelerate put on it."""
    policy.model = trainer.accelerator.unwrap_model(trainer.model)
    policy.adapted = adapted
    policy.base.__dict__.pop("forward", None)
