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

from trainer.adapters import Lora
from trainer.imitation import Example
from trainer.library import SFTConfig, SFTTrainer
from trainer.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class SftSettings:
    """How a model is taught. `batch_size` examples make one optimizer step, `micro_batch` of them at a time.

    `bf16` None means bfloat16 autocast on a GPU and float32 on CPU. `reports` names where TRL reports to (tensorboard,
    trackio, wandb, ...), beside what is returned.
    """

    epochs: float = 2.0
    learning_rate: float = 1e-5
    batch_size: int = 8
    micro_batch: int = 1
    warmup: float = 0.03
    schedule: str = "cosine"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = True
    bf16: bool | None = None
    lora: Lora | None = None
    seed: int = 0
    reports: str = "none"


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
            args=_config(settings, Path(scratch), logs),
            train_dataset=Dataset.from_list([example.columns() for example in examples]),
            processing_class=policy.tokenizer,
            peft_config=None if settings.lora is None else settings.lora.config(),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    policy.model = trainer.accelerator.unwrap_model(trainer.model)
    policy.adapted = settings.lora is not None
    # The fused head that TRL puts on the model to train it, and accelerate's wrapper.
    policy.base.__dict__.pop("forward", None)
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


def _config(settings: SftSettings, scratch: Path, logs: Path | None) -> SFTConfig:
    devices = max(1, torch.cuda.device_count()) if torch.distributed.is_initialized() else 1
    return SFTConfig(
        output_dir=str(logs if logs is not None else scratch),
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.micro_batch,
        gradient_accumulation_steps=max(1, settings.batch_size // (settings.micro_batch * devices)),
        warmup_steps=settings.warmup,
        lr_scheduler_type=settings.schedule,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        gradient_checkpointing=settings.gradient_checkpointing,
        bf16=torch.cuda.is_available() if settings.bf16 is None else settings.bf16,
        max_length=None,  # TRL's default cuts at 1,024 tokens without a word
        packing=False,
        seed=settings.seed,
        logging_steps=1,
        save_strategy="no",
        report_to=settings.reports,
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
