"""TRL's GRPOTrainer as a loss engine: finished micro-batches in, one optimizer step out.

TRL generates, scores and groups by itself. Here the record has done all that, so two of its seams are used:
`get_train_dataloader` yields finished micro-batches, and `_prepare_inputs` hands them to the loss as they are. The old
logprobs are those recorded when the tokens were sampled; on unchanged weights the ratio is therefore 1, and how far it
is from 1 before the update measures everything that went wrong between sampling and training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from trainer import ranks
from trainer.library import GRPOTrainer
from trainer.metrics import Seen

Batch = dict[str, torch.Tensor]


class LossEngine(GRPOTrainer):  # type: ignore[misc] # TRL is untyped
    """GRPOTrainer over finished micro-batches, for exactly one optimizer step."""

    optimizer: torch.optim.Optimizer | None

    def __init__(
        self,
        micro_batches: Sequence[Batch],
        optimizer_of: Callable[[torch.nn.Module], torch.optim.Optimizer],
        **kwargs: Any,
    ) -> None:
        self._micro_batches = micro_batches
        self._optimizer_of = optimizer_of
        self._last: tuple[torch.Tensor, torch.Tensor] | None = None
        self.seen = Seen()
        super().__init__(**kwargs)
        if self.accelerator.num_processes != ranks.size():
            raise RuntimeError(f"{self.accelerator.num_processes} processes train, {ranks.size()} share the rows")
        # TRL gathers a figure a row for logs that are not read here; that needs equally many rows on every rank.
        self.accelerator.gather = lambda tensor: tensor

    def _send_telemetry(self) -> None:
        """Nothing leaves the machine."""

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        """The one that there is, or one for the model that is about to be split: FSDP and DeepSpeed take no other."""
        if self.optimizer is None:
            self.optimizer = self._optimizer_of(self.model if model is None else model)
        return self.optimizer

    def get_train_dataloader(self) -> DataLoader[Batch]:
        """The micro-batches as they are."""
        return DataLoader(self._micro_batches, batch_size=None)  # type: ignore[arg-type] # a list is a map-style dataset

    def _prepare_inputs(self, inputs: Batch) -> Batch:
        return {name: tensor.to(self.accelerator.device) for name, tensor in inputs.items()}

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._last = result[0].detach(), result[1].detach()
        return result

    def _compute_loss(self, model: Any, inputs: Batch) -> torch.Tensor:
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        losses = ranks.gathered(loss.item())
        # All ranks stop, or none: one that went on would wait for the others.
        for found in losses:
            if not math.isfinite(found):
                raise FloatingPointError(f"the loss is {found}: no update was made")
        # TRL multiplies by the number of processes, because DDP takes the mean of their gradients.
        self._observe(inputs, loss.item() / len(losses))
        return loss

    def _observe(self, inputs: Batch, loss: float) -> None:
        if self._last is None:
            raise RuntimeError("TRL computed a loss without asking for logprobs")
        trained = inputs["tool_mask"].bool()
        if not trained.any():
            return  # idle, while other ranks compute
        now, entropies = (tensor[trained].double() for tensor in self._last)
        old = inputs["old_per_token_logps"][trained].double()
        gain = inputs["advantages"].unsqueeze(1).expand_as(trained)[trained]
        # CISPO has no lower bound, and its upper one is of the weight itself.
        low, high = (
            (None, self.epsilon_high) if self.loss_type == "cispo" else (1 - self.epsilon_low, 1 + self.epsilon_high)
        )
        self.seen.add(loss, now, old, gain, entropies, low=low, high=high)


def no_reward(**_: Any) -> list[float]:
    """What TRL wants as a reward function. Raises RuntimeError."""
    raise RuntimeError("rewards come from the record")
