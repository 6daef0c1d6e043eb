"""Supervised learning on recorded sessions, through TRL's SFTTrainer."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset

from trainer import ranks
from trainer.imitation import Example
from trainer.library import SFTConfig, SFTTrainer
from trainer.offline import OfflineSettings, fit
from trainer.policy import Policy, find_checkpoint, load_policy


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


def teach(policy: Policy, examples: Sequence[Example], settings: SftSettings, *, logs: Path | None = None) -> SftReport:
    """Train `policy` on `examples`, in place; with LoRA, `policy.model` becomes a model with adapters.

    The loss of a step is the mean over its trained tokens, prompt and tool results left out. Nothing is cut: choose
    `max_tokens` where the examples are made. On several processes the others :func:`stand_by`; examples that do not
    fill the last round of an epoch are filled up with the first ones of it, as accelerate does.

    Raises ValueError for no examples, and for a `batch_size` that cannot be dealt out evenly.
    """
    if not examples:
        raise ValueError("no examples to learn from")
    settings.arguments(Path())  # before other ranks take part
    with ranks.together((examples, settings, logs)):
        return _teach(policy, examples, settings, logs)


def stand_by(model: str) -> None:
    """On ranks other than 0: help :func:`teach` there to train `model`. Raises ranks.LeaderFailed."""
    for examples, settings, logs in ranks.orders():
        _teach(load_policy(find_checkpoint(model)), examples, settings, logs)


def _teach(policy: Policy, examples: Sequence[Example], settings: SftSettings, logs: Path | None) -> SftReport:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sft-") as scratch:
        trainer = SFTTrainer(
            model=policy.model,
            args=_config(settings, logs if logs is not None else Path(scratch)),
            train_dataset=Dataset.from_list([example.columns() for example in examples]),
            processing_class=policy.tokenizer,
            peft_config=settings.adapters(),
        )
        fit(policy, trainer, settings.lora)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return SftReport(
        examples=len(examples),
        tokens=sum(int(example.mask.sum()) for example in examples),
        steps=trainer.state.global_step,
        first_loss=losses[0],
        last_loss=losses[-1],
        seconds=time.monotonic() - began,
    )


def _config(settings: SftSettings, directory: Path) -> SFTConfig:
    return SFTConfig(
        **settings.arguments(directory),
        warmup_steps=settings.warmup,
        lr_scheduler_type=settings.schedule,
        weight_decay=settings.weight_decay,
        packing=False,
    )
