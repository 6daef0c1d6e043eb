"""`trainer`, with FSDP on the CPU: torch splits models there as on GPUs, but accelerate leaves them whole.

accelerate launch --use_fsdp --fsdp_version 2 ... -m tests.trainer.fsdp_on_cpu grpo ...
"""

from __future__ import annotations

from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

from trainer.cli import app

_init = AcceleratorState.__init__


def _with_fsdp(state: AcceleratorState, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
    _init(state, *args, fsdp_plugin=fsdp_plugin, **kwargs)
    if fsdp_plugin is not None and state.distributed_type == DistributedType.MULTI_CPU:
        state.distributed_type = DistributedType.FSDP
        state.fsdp_plugin = fsdp_plugin
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP  # as accelerate does on GPUs


if __name__ == "__main__":
    AcceleratorState.__init__ = _with_fsdp
    app()
