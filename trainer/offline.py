"""What training on stored sessions has in common, whichever of TRL's trainers does it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback

from trainer import ranks, split
from trainer.adapters import Lora
from trainer.policy import Policy, load_policy

_ZEROS = "FSDP_CPU_RAM_EFFICIENT_LOADING"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSettings:
    """`batch_size` examples (or pairs) make one optimizer step, on each process `micro_batch` of them at a time.

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
        """As keyword arguments of a TRL config that writes to `directory`; nothing is cut, nothing saved.

        Raises ValueError where `batch_size` cannot be dealt out evenly, and for what the launcher got wrong.
        """
        bf16 = torch.cuda.is_available() if self.bf16 is None else self.bf16
        ranks.check_launch(bf16)
        at_once = self.micro_batch * ranks.size()
        if self.batch_size % at_once:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of {at_once}: "
                f"micro_batch {self.micro_batch} on {ranks.size()} processes"
            )
        return {
            "output_dir": str(directory),
            "num_train_epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "per_device_train_batch_size": self.micro_batch,
            "gradient_accumulation_steps": self.batch_size // at_once,
            "max_grad_norm": self.max_grad_norm,
            "gradient_checkpointing": self.gradient_checkpointing,
            "use_cpu": not torch.cuda.is_available(),
            "bf16": bf16,
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


def load_whole(source: Path) -> Policy:
    """The policy at `source`, all of it on this process, whatever the launcher asks for.

    Left alone, transformers loads zeros under FSDP on every process but one, for accelerate to put the weights in.
    """
    asked = os.environ.pop(_ZEROS, None)
    try:
        return load_policy(source)
    finally:
        if asked is not None:
            os.environ[_ZEROS] = asked


def fit(policy: Policy, trainer: Any, lora: Lora | None) -> None:
    """Train, and make what `trainer` trained the policy's model again, without what TRL and accelerate put on it.

    A model that was split over the processes is put together again on rank 0, on the CPU; the other ranks keep nothing.
    Raises ValueError for a split that the launcher asks for and accelerate does not make.
    """
    was_split = split.is_split(trainer)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    if was_split:
        state = split.gathered(trainer)  # all ranks give their parts
        split.release(trainer)
        if ranks.rank() > 0:
            return
        whole = load_whole(policy.source)
        if lora is not None:
            whole.adapt(lora)
        if lost := [n for n, p in whole.model.named_parameters() if p.requires_grad and n not in state]:
            raise RuntimeError(f"not gathered from the processes, so what was trained is lost: {', '.join(lost[:3])}")
        whole.model.load_state_dict({**whole.model.state_dict(), **state})
        policy.model, policy.adapted = whole.model, whole.adapted
        return
    policy.model = trainer.accelerator.unwrap_model(trainer.model)
    policy.adapted = lora is not None
    policy.base.__dict__.pop("forward", None)
