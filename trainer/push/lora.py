"""Push by LoRA hot-load: only the adapter is read, some megabytes instead of gigabytes; the base weights stay.

Theory of operation. `trainer serve --lora-rank R` starts vLLM with an adapter that changes nothing, under the name
`policy`, and everybody asks for that name from the first call on: there is no moment at which some ask for the base
and some for the adapter. A push replaces what the name stands for, in place, while the server is paused. So a hot-load
is to requests what a reload is: those in flight go on under the new adapter, and their version spans are true. After a
restart vLLM has the first adapter and the version "default" again: both are lost together, and the next push or
`TrainingRun.catch_up` brings both back.

Why not vLLM's own /v1/load_lora_adapter: with `load_inplace` every later request carries that flag and the path of its
time, so vLLM 0.32 reads the adapter from disk again in every forward pass, and a request in flight brings the *old* one
back; without it a new adapter needs a new id, and a request in flight ends under the old one with the new version in
its record. Our worker extension (:mod:`trainer.vllm_worker`) does the one replacement that is meant.
"""

from __future__ import annotations

import json
from pathlib import Path

from trainer.push.server import PushError, WeightServer

CONFIG = "adapter_config.json"


class HotLoad:
    """Takes a directory that PEFT wrote: adapter_config.json and adapter_model.safetensors.

    `rank` of the adapters to come, where it is known, is held against the server's at once.
    """

    adapters = True

    def __init__(self, rank: int | None = None) -> None:
        self._rank = rank

    def check(self, server: WeightServer) -> None:
        """Raise PushError where the server was started without adapters, or with too small ones."""
        server.version()
        first = server.first_adapter()
        if first is None:
            rank = self._rank or "RANK"
            raise PushError(
                f"the vLLM at {server.url} takes no adapters: start it with `trainer serve MODEL --lora-rank {rank}`, "
                "or push by reload"
            )
        if self._rank is not None and (limit := adapter_rank(first)) < self._rank:
            raise PushError(
                f"the adapters have rank {self._rank}, and the vLLM at {server.url} was started for rank {limit}: "
                f"start it with `trainer serve MODEL --lora-rank {self._rank}`, or push by reload"
            )

    def load(self, server: WeightServer, directory: Path) -> None:
        """Put the adapter in `directory`, which every worker sees under this path, in the former one's place."""
        server.on_workers("swap_adapter", path=str(directory))


def adapter_rank(directory: Path) -> int:
    """The rank of the adapter in `directory`. Raises FileNotFoundError where there is none."""
    path = directory / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"no adapter in {directory}: {path} does not exist")
    return int(json.loads(path.read_text())["r"])
