"""TRL's AsyncGRPOTrainer over the record: the one file that names its classes, which change from release to release.

It packs the samples of a step into prefix trees, so that what sessions share is computed once, with FlashAttention 3;
so it needs a GPU (:mod:`trainer.asynchronous.check`). TRL pulls, and we answer at three places:

    queue      its dataset asks for a sample: at a step's beginning the record is waited for, and gives whole groups
    planner    one item of the data loader is one whole step, cut into micro-batches of at most `token_budget` tokens
    transfer   it sends weights after every step: the step is made durable and pushed as any other, verified by a probe

TRL's own step is a number of micro-batches, each divided by its own tokens and cut anywhere in the stream. Ours is
whole groups and divided by the tokens of the step, so that the gradient is that of :mod:`trainer.grpo`, and a batch in
the record is what a step used. Staleness is bounded twice: by what is taken from the record, and by TRL's own dataset,
which would drop what is older; nothing may be dropped there, and a step that lost a sample is an error.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader, IterableDataset
from transformers import AutoTokenizer, PrinterCallback

from trainer.asynchronous.feed import Ended, PushTransfer, RecordWorker
from trainer.grpo import Settings
from trainer.intake import Taken
from trainer.metrics import Seen, StepMetrics
from trainer.notes import read_note
from trainer.policy import Policy
from trainer.sequences import Row

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # it warns of what this file is for
_hide_vllm = "vllm" not in sys.modules
if _hide_vllm:  # see trainer.library
    sys.modules["vllm"] = None  # type: ignore[assignment] # the documented way to make an import fail
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer  # noqa: E402
from trl.experimental.async_grpo.async_grpo_trainer import DataCollatorForRollout, RolloutQueueDataset  # noqa: E402
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample  # noqa: E402
from trl.experimental.async_grpo.packing import TreeRow  # noqa: E402

if _hide_vllm:
    del sys.modules["vllm"]

ANY_AGE = 2**31 - 1
_NO_END = 2**31 - 1
MicroBatch = dict[str, torch.Tensor]


def samples_of(taken: Taken, model_version: int) -> list[RolloutSample]:
    """The rows of a step as TRL's samples, in their order; `model_version` is TRL's count of the weights now trained.

    A sample's own version is as much smaller as its oldest token is older. Raises ValueError for a row that begins with
    a trained token: TRL would leave that token out.
    """
    groups = {session.id: number for number, group in enumerate(taken.selection.groups) for session in group.sessions}
    rewards = {session.id: session.reward for group in taken.selection.groups for session in group.sessions}
    samples = []
    for item in taken.selection.rows:
        row = item.row
        if row.mask[0]:
            raise ValueError(f"a row of session {row.session} begins with a sampled token: it has no prompt")
        reward = rewards[row.session]
        samples.append(
            RolloutSample(
                prompt=[],  # messages are only for TRL's traces
                completion=[],
                input_ids=row.ids.astype(np.int64),
                completion_mask=row.mask.astype(np.int64),
                old_log_probs=row.logprobs,
                advantage=item.advantage,
                model_version=model_version - _lag(row, int(taken.version) - 1),
                group_id=groups[row.session],
                metrics={} if reward is None else {"reward": reward},
            )
        )
    return samples


def _lag(row: Row, current: int) -> int:
    """By how many versions the oldest trained token of `row` is older than `current`; unnumbered ones count as new."""
    named = {span.weight_version or "" for span in row.spans}
    versions = [0 if name == "default" else int(name) for name in named if name == "default" or name.isdecimal()]
    return max((current - version for version in versions), default=0)


def packed(samples: Sequence[dict[str, Any]], token_budget: int) -> list[TreeRow]:
    """Micro-batches of a step, in order: each of at most `token_budget` different tokens; a longer sample is alone."""
    rows: list[TreeRow] = []
    for sample in samples:
        if not rows or not rows[-1].fits(sample, token_budget):
            rows.append(TreeRow())
        rows[-1].add(sample)
    return rows


def configuration(
    settings: Settings, output: Path, *, temperature: float, max_lag: int | None, steps: int | None, tied: bool
) -> AsyncGRPOConfig:
    """`settings` as TRL's. Raises ValueError for what its asynchronous trainer cannot do."""
    if settings.loss != "dapo":
        raise ValueError(f"--async has TRL's clipped loss only, not {settings.loss!r}: --loss dapo, or --follow")
    if settings.lora is not None:
        raise ValueError("--async trains all weights: for adapters (--lora-rank) use --follow")
    return AsyncGRPOConfig(
        output_dir=str(output),
        model_init_kwargs={"tie_word_embeddings": True} if tied else None,
        dtype="float32",
        max_steps=_NO_END if steps is None else steps,
        # An item of our data loader is a whole step: its micro-batches are accumulated in `training_step`.
        gradient_accumulation_steps=1,
        per_device_train_batch_size=1,
        token_budget=settings.token_budget,
        temperature=temperature,
        epsilon=settings.epsilon,
        epsilon_high=settings.upper,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        gradient_checkpointing=settings.gradient_checkpointing,
        bf16=torch.cuda.is_available() if settings.bf16 is None else settings.bf16,
        use_cpu=not torch.cuda.is_available(),
        max_staleness=ANY_AGE if max_lag is None else max_lag,
        weight_sync_steps=1,
        seed=settings.seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


class RecordTrainer(AsyncGRPOTrainer):  # type: ignore[misc] # TRL is untyped
    """AsyncGRPOTrainer, a data loader item of which is a step, and whose loss is divided by the step's tokens."""

    def __init__(self, **kwargs: Any) -> None:
        self.measured: StepMetrics | None = None
        self._seen = Seen()
        self._tokens = 0
        self._output: Any = None
        super().__init__(**kwargs)
        if self.accelerator.num_processes != 1:
            raise ValueError("--async trains in one process: on several GPUs launch --follow")
        self.model.register_forward_hook(self._remember)

    def _send_telemetry(self) -> None:
        """Nothing leaves the machine."""

    def get_train_dataloader(self) -> DataLoader[list[MicroBatch]]:
        """A step an item; not prepared by accelerate, which would ask for the next step before this one is made."""
        return DataLoader(_Steps(self), batch_size=None, collate_fn=_as_it_is)

    def training_step(self, model: Any, inputs: list[MicroBatch], num_items_in_batch: Any = None) -> torch.Tensor:
        """Accumulate the gradient of a whole step; measure it."""
        began = time.monotonic()
        self._seen = Seen()
        self._tokens = sum(int(micro["global_n_tokens"][0]) for micro in inputs)
        total = torch.zeros((), device=self.args.device)
        for micro in inputs:
            total += super().training_step(model, micro, num_items_in_batch)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        self._seen.norm = torch.nn.utils.get_total_norm(gradients).item()
        self.measured = StepMetrics.of(
            [self._seen],
            rows=len(self.rollout_worker.taken.selection.rows),
            micro_batches=len(inputs),
            seconds=time.monotonic() - began,
        )
        return total

    def compute_loss(self, model: Any, inputs: MicroBatch, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's loss of a micro-batch, divided by the tokens of the step. Raises FloatingPointError."""
        # TRL divides by the tokens of the micro-batch.
        share = inputs["global_n_tokens"][0] / self._tokens
        loss: torch.Tensor = super().compute_loss(model, inputs, *args, **kwargs) * share
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"the loss is {loss.item()}: no update was made")
        kept = inputs["token_index"] >= 0
        at = inputs["token_index"][kept]
        now, entropy = (self._output[name].detach().flatten()[at].double() for name in ("log_probs", "entropy"))
        self._output = None
        old, gain = (inputs[name][kept].double() for name in ("old_log_probs", "advantages"))
        low, high = 1 - self.epsilon_low, 1 + self.epsilon_high
        self._seen.add(loss.item(), now, old, gain, entropy, low=low, high=high)
        return loss

    def _remember(self, module: Any, args: Any, output: Any) -> None:
        self._output = output


class _Steps(IterableDataset[list[MicroBatch]]):
    """The micro-batches of one step after another, through TRL's own dataset and collator."""

    def __init__(self, trainer: RecordTrainer) -> None:
        self._trainer = trainer

    def __iter__(self) -> Iterator[list[MicroBatch]]:
        trainer, worker = self._trainer, self._trainer.rollout_worker
        sink = trainer._metrics["train"]
        dataset = trainer._rollout_dataset = RolloutQueueDataset(
            rollout_queue=worker.rollout_buffer,
            model_version_fn=lambda: trainer.model_version,
            check_health_fn=worker.check_health,
            stale_after_s=trainer.args.heartbeat_stale_after_s,
            metrics=sink,
            max_staleness=trainer.args.max_staleness,
        )
        collate = DataCollatorForRollout(trainer.processing_class.pad_token_id, metrics=sink)
        source = iter(dataset)
        while True:
            try:
                samples = [next(source)]
            except Ended:
                trainer.control.should_training_stop = True
                return
            samples += [next(source) for _ in range(len(worker.taken.selection.rows) - 1)]
            yield [collate([[row]]) for row in packed(samples, trainer.args.token_budget)]


def _as_it_is(item: list[MicroBatch]) -> list[MicroBatch]:
    return item


def load(
    checkpoint: Path, worker: RecordWorker, transfer: PushTransfer, config: Callable[[bool], AsyncGRPOConfig]
) -> tuple[RecordTrainer, Policy]:
    """TRL's trainer on `checkpoint`, and the policy in it. `config` is told whether the embeddings are tied."""
    tied = bool(read_note(checkpoint).get("tied"))  # see trainer.policy.load_policy
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    trainer = RecordTrainer(
        model=str(checkpoint),
        args=config(tied),
        train_dataset=Dataset.from_dict({"prompt": [""]}),
        processing_class=tokenizer,
        rollout_worker=worker,
        weight_transfer=transfer,
    )
    trainer.remove_callback(PrinterCallback)
    model = trainer.model
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    shared = head is not None and head.weight is embedding.weight
    return trainer, Policy(model=model, tokenizer=tokenizer, source=checkpoint, tied=shared)
