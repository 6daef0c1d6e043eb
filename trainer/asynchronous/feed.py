"""The two parts that TRL's asynchronous trainer can be given: where its samples come from, and where its weights go."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer.batches import MixedTemperatures, temperature

if TYPE_CHECKING:
    import torch

    from trainer.intake import Taken


class Ended(Exception):
    """There will be no further step; the message says why."""


@dataclass(slots=True)
class RecordWorker:
    """TRL's rollout worker, without rollouts: those run elsewhere and are in the record.

    There is no thread. TRL's dataset reads `rollout_buffer` in its training loop; where that is empty a step begins:
    `take` is called, and `samples` makes samples of its rows for TRL's count of versions. So what is taken is never
    older than the weights it trains by more than was allowed. Rows sampled at another `temperature` are refused.
    """

    take: Callable[[], Taken]
    samples: Callable[[Taken, int], Sequence[Any]]
    temperature: float
    model_version: int = 0
    taken: Taken | None = None
    """The step in hand."""
    rollout_buffer: queue.Queue[Any] = field(init=False)
    metrics_queue: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.rollout_buffer = _Buffer(self)

    def start(self) -> None:
        """Nothing runs here."""

    def stop(self) -> None:
        """Nothing runs here."""

    def update_model_version(self, model_version: int) -> None:
        """TRL's count: 1 when it begins to train, one more with every step."""
        self.model_version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Faults are raised where the buffer is read."""

    def fill(self) -> None:
        """Begin a step. Raises RuntimeError when the last one has not been trained: samples of it were dropped."""
        if self.taken is not None:
            raise RuntimeError("TRL dropped samples of the step in hand: they were older than its max_staleness")
        taken = self.take()
        found = temperature([item.row for item in taken.selection.rows])
        if found != self.temperature:
            raise MixedTemperatures(f"the rows were sampled at {found:g}: give --temperature {found:g}")
        self.taken = taken
        for sample in self.samples(taken, self.model_version):
            self.rollout_buffer.put_nowait(sample)


class _Buffer(queue.Queue[Any]):
    """The queue that TRL's dataset drains; whoever finds it empty begins a step."""

    def __init__(self, worker: RecordWorker) -> None:
        super().__init__()
        self._worker = worker

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.empty():
            self._worker.fill()
        return super().get(block=False)


@dataclass(slots=True)
class PushTransfer:
    """TRL's weight transfer. `send` makes the step durable and pushes it; it pauses and resumes the server itself."""

    send: Callable[[], None]

    def init_weight_transfer(self) -> None:
        """Nothing to set up."""

    def pause(self) -> None:
        """A push pauses for as long as it must."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """What TRL streams is left alone: an export holds the same weights, and is what the push can be proven by."""
        self.send()

    def resume(self) -> None:
        """A push resumes by itself."""

    def destroy(self) -> None:
        """Nothing was set up."""
