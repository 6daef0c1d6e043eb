"""LoRA: adapters instead of all weights, and the whole weights with them merged in."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SERVED_NAME = "policy"
"""The model name under which vLLM serves the adapter that is trained. The proxy knows it, too (addons.engine)."""


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


def blank_adapter(model: str, rank: int, folder: Path) -> Path:
    """An adapter of `rank` for `model` (a directory or a Hugging Face id) that changes nothing: its B is zero.

    What vLLM serves until the first push. It is made once in `folder`, from the model's config alone, and kept there:
    vLLM may read it again as long as it runs.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model)
    digest = hashlib.sha256(config.to_json_string(use_diff=False).encode()).hexdigest()[:16]
    place = folder.resolve() / f"blank-{digest}-r{rank}"
    if not place.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".blank-", dir=folder))
        try:
            _write_blank(config, rank, partial)
            partial.rename(place)
        except OSError:
            if not place.is_dir():  # else another one made it meanwhile
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return place


def _write_blank(config: Any, rank: int, folder: Path) -> None:
    import torch
    from peft import get_peft_model, get_peft_model_state_dict
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):  # names and shapes, no weights
        adapted = get_peft_model(AutoModelForCausalLM.from_config(config), Lora(rank=rank).config())
        shapes = {name: tensor.shape for name, tensor in get_peft_model_state_dict(adapted).items()}
    save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, folder / "adapter_model.safetensors")
    adapted.peft_config["default"].save_pretrained(str(folder))
