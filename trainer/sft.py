"""Supervised learning on recorded sessions, through TRL's SFTTrainer."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from datasets import Dataset
from transformers import PrinterCallback

from trainer.imitation import Example
from trainer.library import SFTConfig, SFTTrainer
from trainer.offline import OfflineSettings, take_back
from trainer.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class SftSettings(OfflineSettings):
    """How a model is taught. `warmup` is the share of the steps in which the learning rate rises."""

    epochs: float = 2.0
    learning_rate: float = 1e-5
    warmup: float = 0.03
    schedule: str = "cosine"
    weight_decay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SftReport:
    """What came of it. Losses are nats a token: of the first and the last logged step, before their updates."""

    examples: int
    tokens: int
    steps: int
    first_loss: float
    last_loss: float
    seconds: float
    main_process: bool
    """Of several processes the one that has to write the result."""


def teach(policy: Policy, examples: Sequence[Example], settings: SftSettings, *, logs: Path | None = None) -> SftReport:
    """Train `policy` on `examples`, in place; with LoRA, `policy.model` becomes a model with adapters.

    The loss of a step is the mean over its trained tokens, prompt and tool results left out. Nothing is cut: choose
    `max_tokens` where the examples are made. Run under `accelerate launch` for several GPUs.

    Raises ValueError for no examples.
    """
    if not examples:
        raise ValueError("no examples to learn from")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sft-") as scratch:
        trainer = SFTTrainer(
            model=policy.model,
            args=_config(settings, logs if logs is not None else Path(scratch)),
            train_dataset=Dataset.from_list([example.columns() for example in examples]),
            processing_class=policy.tokenizer,
            peft_config=settings.adapters(),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    take_back(policy, trainer, adapted=settings.lora is not None)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return SftReport(
        examples=len(examples),
        tokens=sum(int(example.mask.sum()) for example in examples),
        steps=trainer.state.global_step,
        first_loss=losses[0],
        last_loss=losses[-1],
        seconds=time.monotonic() - began,
        main_process=trainer.accelerator.is_main_process,
    )


def _config(settings: SftSettings, directory: Path) -> SFTConfig:
    devices = max(1, torch.cuda.device_count()) if torch.distributed.is_initialized() else 1
    return SFTConfig(
        **settings.arguments(directory),
        gradient_accumulation_steps=max(1, settings.batch_size // (settings.micro_batch * devices)),
        warmup_steps=settings.warmup,
        lr_scheduler_type=settings.schedule,
        weight_decay=settings.weight_decay,
        packing=False,
    )
