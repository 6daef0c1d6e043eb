"""A training run whose updates TRL's AsyncGRPOTrainer makes, in TRL's own loop.

Everything around an update is as in :mod:`trainer.training`: what is taken from the record, what is kept on disk and in
the record, what is pushed. Only who calls whom is turned round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch

from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder
from trainer.asynchronous.feed import Ended, PushTransfer, RecordWorker
from trainer.asynchronous.loop import RecordTrainer, configuration, load, samples_of
from trainer.following import Following
from trainer.grpo import Settings
from trainer.intake import Intake, Taken
from trainer.policy import Policy
from trainer.push import WeightServer
from trainer.training import StepReport, TrainingRun


@dataclass(slots=True)
class _Run(TrainingRun):
    """A run on a model in TRL's trainer."""

    def score(self, ids: Sequence[int], start: int) -> list[float]:
        return _token_logprobs(self.learner.policy.model, ids, start, autocast=self.learner.bf16)


@dataclass(slots=True)
class AsyncTraining:
    """`run` with TRL's trainer around its model. A context manager."""

    run: TrainingRun
    trainer: RecordTrainer
    worker: RecordWorker
    transfer: PushTransfer
    _cleanup: ExitStack = field(repr=False)

    @classmethod
    def open(
        cls,
        directory: Path,
        model: str,
        settings: Settings,
        *,
        temperature: float = 1.0,
        max_lag: int | None = None,
        steps: int | None = None,
    ) -> Self:
        """As `TrainingRun.open`, for `steps` updates (None: no end) on rows sampled at `temperature`.

        Raises ValueError for settings that TRL's trainer cannot carry out.
        """
        worker = RecordWorker(take=_too_early, samples=samples_of, temperature=temperature)
        transfer = PushTransfer(send=_too_early)
        made: list[RecordTrainer] = []
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grpo-")))

            def loaded(checkpoint: Path) -> Policy:
                trainer, policy = load(
                    checkpoint,
                    worker,
                    transfer,
                    lambda tied: configuration(
                        settings, scratch, temperature=temperature, max_lag=max_lag, steps=steps, tied=tied
                    ),
                )
                made.append(trainer)
                return policy

            run = _Run.open(directory, model, settings, load=loaded)
            [trainer] = made
            trainer.optimizer = run.learner.optimizer
            return cls(run, trainer, worker, transfer, stack.pop_all())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def train(
        self,
        store: Store,
        recorder: Recorder,
        *,
        following: Following,
        intake: Intake,
        server: WeightServer | None = None,
        reported: Callable[[StepReport], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> str | None:
        """Train until there are no further steps, waiting as `following` does; the reason that it gave.

        None when all steps were made. What the server should be serving by now was pushed before
        (`TrainingRun.catch_up`). Raises what `TrainingRun.step` raises.
        """
        run, worker = self.run, self.worker
        reason: list[str] = []

        def take() -> Taken:
            ended = following.wait(run.fresh(None if server is None else server.version(), intake))
            if ended is not None:
                reason.append(ended)
                raise Ended(ended)
            taken = run.take(Reader(store), recorder, intake, server=server)
            say(taken.says)
            return taken

        def send() -> None:
            taken, metrics = worker.taken, self.trainer.measured
            if taken is None or metrics is None:
                return  # TRL's first transfer, before any step
            worker.taken = None
            reported(run.finish(Reader(store), recorder, taken, metrics, server=server, say=say))

        worker.take, self.transfer.send = take, send
        self.trainer.train()
        return reason[0] if reason else None


def _too_early() -> Any:
    raise RuntimeError("nothing trains yet")


def _token_logprobs(model: Any, ids: Sequence[int], start: int, *, autocast: bool) -> list[float]:
    """As policy.token_logprobs at temperature 1, for a model whose attention wants to be told of TRL's trees."""
    n, device = len(ids), model.device
    ends = torch.tensor([0, n], dtype=torch.int32, device=device)
    row = torch.tensor([list(ids)], device=device)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            logits = model(
                input_ids=row,
                position_ids=torch.arange(n, device=device)[None],
                use_cache=False,
                logits_to_keep=n - start + 1,
                tree_kv_index=torch.arange(n, device=device),
                tree_cu_seqlens_q=ends,
                tree_cu_seqlens_k=ends,
                tree_max_seqlen_q=n,
                tree_max_seqlen_k=n,
            ).logits[0, :-1]
        found: list[float] = logits.float().log_softmax(-1).gather(-1, row[0, start:, None]).squeeze(-1).tolist()
        return found
    finally:
        model.train(was_training)
