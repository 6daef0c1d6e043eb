"""What an update saw: sums as its micro-batches come, figures in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Seen:
    """Sums over the trained tokens of one step, and the norm of its gradient, which is the same on every rank."""

    loss: float = 0.0
    tokens: int = 0
    gap: float = 0.0
    gap_max: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: float = 0.0
    entropy: float = 0.0
    norm: float = 0.0

    def add(
        self, loss: float, now: Tensor, old: Tensor, gain: Tensor, entropies: Tensor, *, low: float | None, high: float
    ) -> None:
        """Count the trained tokens of a micro-batch, all tensors float [T]: logprobs, advantages, entropies.

        A token is clipped where its ratio is above `high` with an advantage above 0, or below `low` with one below 0;
        with `low` None (CISPO, which caps the weight of a token and keeps its gradient) wherever it is above `high`.
        """
        gap = now - old
        ratio = gap.exp()
        clipped = ratio > high if low is None else ((ratio > high) & (gain > 0)) | ((ratio < low) & (gain < 0))
        self.loss += loss
        self.tokens += len(gap)
        self.gap += gap.abs().sum().item()
        self.gap_max = max(self.gap_max, gap.abs().max().item())
        self.ratio += ratio.sum().item()
        self.ratio_max = max(self.ratio_max, ratio.max().item())
        self.clipped += clipped.double().sum().item()
        self.entropy += entropies.sum().item()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """What one update saw. Everything but `gradient_norm` is from before the update.

    `logprob_gap_max` and `logprob_gap_mean` are |logprob now - logprob recorded| in nats over the trained tokens.
    `ratio_mean` and `ratio_max` are of exp(now - recorded); `clip_share` is the part of the tokens whose gradient the
    clipping removes; `entropy` is nats a token. On several processes everything is of all of them; `micro_batches` is
    then how many each computed.
    """

    loss: float
    gradient_norm: float
    logprob_gap_max: float
    logprob_gap_mean: float
    ratio_mean: float
    ratio_max: float
    clip_share: float
    entropy: float
    tokens_trained: int
    rows: int
    micro_batches: int
    processes: int
    seconds: float

    @classmethod
    def of(cls, every: Sequence[Seen], *, rows: int, micro_batches: int, seconds: float) -> StepMetrics:
        """Of what each process saw of a step."""
        tokens = sum(seen.tokens for seen in every)
        return cls(
            loss=sum(seen.loss for seen in every),
            gradient_norm=every[0].norm,
            logprob_gap_max=max(seen.gap_max for seen in every),
            logprob_gap_mean=sum(seen.gap for seen in every) / tokens,
            ratio_mean=sum(seen.ratio for seen in every) / tokens,
            ratio_max=max(seen.ratio_max for seen in every),
            clip_share=sum(seen.clipped for seen in every) / tokens,
            entropy=sum(seen.entropy for seen in every) / tokens,
            tokens_trained=tokens,
            rows=rows,
            micro_batches=micro_batches,
            processes=len(every),
            seconds=seconds,
        )
