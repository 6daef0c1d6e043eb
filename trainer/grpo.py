"""One GRPO update from rows that were sampled elsewhere: what it is computed by, what it saw, the policy that it moves.

On several processes (:mod:`trainer.ranks`) each computes its share of the micro-batches, on a whole copy of the model
or on one that is split over them (:mod:`trainer.split`), and the gradients are summed: the update is the one that a
single process makes, up to the order of the sums.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from datasets import Dataset
from transformers import PrinterCallback

from trainer import batches, ranks, split
from trainer.adapters import Lora
from trainer.batches import Credited
from trainer.library import GRPOConfig
from trainer.loss_engine import Batch, LossEngine, no_reward
from trainer.metrics import StepMetrics
from trainer.policy import Policy
from trainer.shares import share


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one update is computed. `token_budget` bounds the tokens of a micro-batch, padding included.

    `loss` is one of the two of TRL's that do not change when a session becomes several rows. A token's ratio is
    clipped to 1 - `epsilon` .. 1 + `epsilon_high` (dapo; None: 0.28) or its weight capped at `epsilon_high` (cispo;
    None: 5). `bf16` None means bfloat16 autocast on a GPU and float32 on CPU, where bfloat16 is slow and moves ratios
    by 8 percent. `lora` trains adapters instead of the weights; what is exported and pushed has them merged in.
    """

    learning_rate: float = 1e-6
    epsilon: float = 0.2
    epsilon_high: float | None = None
    loss: Literal["dapo", "cispo"] = "dapo"
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    token_budget: int = 8192
    gradient_checkpointing: bool = True
    bf16: bool | None = None
    seed: int = 0
    lora: Lora | None = None

    @property
    def upper(self) -> float:
        """`epsilon_high`, or what suits the loss."""
        return self.epsilon_high if self.epsilon_high is not None else {"dapo": 0.28, "cispo": 5.0}[self.loss]


@dataclass(slots=True)
class Learner:
    """A policy and the optimizer that moves it. Steps may be taken as long as it lives; the moments carry over."""

    policy: Policy
    settings: Settings
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        ranks.check_launch(self.bf16)
        if self.settings.lora is not None and not self.policy.adapted:
            torch.manual_seed(self.settings.seed)  # of the adapters' first values
            self.policy.adapt(self.settings.lora)
        if not ranks.splits():
            self.policy.model.to("cuda" if torch.cuda.is_available() else "cpu")
        self.optimizer = self._optimizer(self.policy.model)

    @property
    def bf16(self) -> bool:
        """Whether the forward pass computes in bfloat16."""
        return torch.cuda.is_available() if self.settings.bf16 is None else self.settings.bf16

    def step(self, rows: Sequence[Credited]) -> StepMetrics:
        """One optimizer step on all of `rows`; the loss is divided by the number of their trained tokens.

        Raises ValueError for no rows, batches.MixedTemperatures, and FloatingPointError before a loss that is not
        finite could reach the weights.
        """
        if not rows:
            raise ValueError("no rows to train on")
        batches.temperature([item.row for item in rows])  # before other ranks take part
        with ranks.together(rows):
            return self._update(rows)

    def _update(self, rows: Sequence[Credited]) -> StepMetrics:
        began = time.monotonic()
        total = sum(item.row.trained for item in rows)
        temperature = batches.temperature([item.row for item in rows])
        micro = share(
            rows,
            token_budget=self.settings.token_budget,
            pad_id=self.policy.pad_id,
            rank=ranks.rank(),
            ranks=ranks.size(),
        )
        with tempfile.TemporaryDirectory(prefix="grpo-") as scratch:
            make = partial(self._engine, micro=micro, temperature=temperature, scratch=Path(scratch))
            engine = split.train(self.policy, self.optimizer, make) if ranks.splits() else self._whole(make)
        engine.seen.norm = next(float(line["grad_norm"]) for line in engine.state.log_history if "grad_norm" in line)
        every = ranks.gathered(engine.seen)
        tokens = sum(seen.tokens for seen in every)
        if tokens != total:
            raise RuntimeError(f"{tokens} tokens reached the loss, not the {total} of the rows")
        if not all(math.isclose(seen.norm, every[0].norm, rel_tol=1e-4) for seen in every):
            raise RuntimeError(f"the ranks made different updates: gradient norms {[seen.norm for seen in every]}")
        return StepMetrics.of(every, rows=len(rows), micro_batches=len(micro), seconds=time.monotonic() - began)

    def _whole(self, make: Callable[[torch.nn.Module], LossEngine]) -> LossEngine:
        engine = make(self.policy.model)
        engine.optimizer = self.optimizer
        try:
            engine.train()
        finally:
            # TRL and accelerate wrap `forward` on the instance, once more with every step.
            for model in (self.policy.model, self.policy.base):
                model.__dict__.pop("forward", None)
            self.policy.model.zero_grad(set_to_none=True)
        return engine

    def _optimizer(self, model: torch.nn.Module) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            [parameter for parameter in model.parameters() if parameter.requires_grad],
            lr=self.settings.learning_rate,
            weight_decay=self.settings.weight_decay,
        )

    def _engine(
        self, model: torch.nn.Module, *, micro: Sequence[Batch], temperature: float, scratch: Path
    ) -> LossEngine:
        config = GRPOConfig(
            output_dir=str(scratch),
            max_steps=1,
            gradient_accumulation_steps=len(micro),
            steps_per_generation=len(micro),
            # TRL's own batching is not used, but it checks that groups would fit into it.
            per_device_train_batch_size=2,
            num_generations=2,
            temperature=temperature,
            learning_rate=self.settings.learning_rate,
            max_grad_norm=self.settings.max_grad_norm,
            loss_type=self.settings.loss,
            epsilon=self.settings.epsilon,
            epsilon_high=self.settings.upper,
            beta=0.0,
            bf16=self.bf16,
            use_cpu=not torch.cuda.is_available(),
            # Every parameter takes part in every micro-batch. Should one not, the ranks' gradient norms differ; to
            # search for such parameters would hide it, and breaks gradient checkpointing of adapters.
            ddp_find_unused_parameters=False,
            gradient_checkpointing=self.settings.gradient_checkpointing,
            lr_scheduler_type="constant",
            seed=self.settings.seed,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        engine = LossEngine(
            micro,
            self._optimizer,
            model=model,
            reward_funcs=no_reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": [""]}),
            processing_class=self.policy.tokenizer,
        )
        engine.remove_callback(PrinterCallback)
        return engine

    def save_optimizer(self, path: Path) -> None:
        """Write the optimizer's moments to `path`, whole or not at all."""
        partial = path.with_suffix(".partial")
        torch.save(self.optimizer.state_dict(), partial)
        partial.replace(path)

    def load_optimizer(self, path: Path) -> None:
        """Continue with the moments in `path`; the learning rate stays that of the settings."""
        if ranks.splits() and ranks.rank() > 0:
            return  # rank 0 hands them out
        self.optimizer.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate


def stand_by(learner: Callable[[], Learner]) -> None:
    """On ranks other than 0: take part in every step that rank 0 takes, until it ends. Raises ranks.LeaderFailed.

    `learner` makes one in the state that rank 0's is in; it is called when the first step is taken.
    """
    mine: Learner | None = None
    for rows in ranks.orders():
        mine = mine or learner()
        mine._update(rows)
