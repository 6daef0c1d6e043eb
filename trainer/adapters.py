"""LoRA: adapters instead of all weights, and the whole weights with them merged in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Adapters of `rank` on every linear layer but the head, scaled by `alpha` / `rank` (None: twice the rank)."""

    rank: int
    alpha: int | None = None
    dropout: float = 0.0

    def config(self) -> Any:
        """As PEFT wants it."""
        from peft import LoraConfig

        return LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha if self.alpha is not None else 2 * self.rank,
            lora_dropout=self.dropout,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )


def merged_state(model: Any) -> dict[str, Any]:
    """The weights of `model` under its base model's names, with its adapters merged in; `model` stays as it is.

    What vLLM reloads is then a plain checkpoint, and its logprobs can be compared with the trainer's as always.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    base: PreTrainedModel = model.get_base_model()
    layers = [module for module in base.modules() if isinstance(module, BaseTunerLayer)]
    before = [layer.get_base_layer().weight.detach().clone() for layer in layers]
    model.merge_adapter(safe_merge=True)
    try:
        state = {
            name.replace(".base_layer.", "."): tensor.detach().clone()
            for name, tensor in base.state_dict().items()
            if ".lora_" not in name
        }
    finally:
        model.unmerge_adapter()
        # Adding and taking away again leaves rounding errors behind, step after step.
        for layer, weight in zip(layers, before, strict=True):
            layer.get_base_layer().weight.data.copy_(weight)
    return state
