"""Whether TRL's asynchronous trainer can run here: asked before it is imported, which takes long."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from trainer import ranks

_INSTEAD = "Use --follow, which trains on the record in the same way on any machine."
_PACKED = {"full_attention", "sliding_attention"}


def check_machine() -> None:
    """Raises ValueError, saying what is missing and what can be done instead."""
    import torch

    if not torch.cuda.is_available():
        raise ValueError(
            "--async needs a GPU, and torch sees none: TRL's AsyncGRPOTrainer computes attention by FlashAttention 3, "
            f"which there is for CUDA only. {_INSTEAD}"
        )
    if importlib.util.find_spec("kernels") is None:
        raise ValueError(
            "--async needs the package `kernels`, from which TRL has FlashAttention 3: pip install kernels. Or: "
            f"{_INSTEAD}"
        )
    if (processes := ranks.launched()) > 1:
        raise ValueError(f"--async trains in one process, and {processes} were launched. {_INSTEAD}")


def check_model(checkpoint: Path) -> None:
    """Raises ValueError for a model with other layers than attention: TRL's packing mixes the samples in those."""
    config = json.loads((checkpoint / "config.json").read_text())
    layers = set(config.get("text_config", config).get("layer_types") or ()) - _PACKED
    if layers:
        raise ValueError(f"--async cannot train {checkpoint}: it has layers of {', '.join(sorted(layers))}. {_INSTEAD}")
