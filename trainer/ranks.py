"""Several processes, one run: rank 0 carries out the command, the other ranks stand by for the updates.

`accelerate launch` (or torchrun) starts one command N times. What follows is a director and its crew, not N equals:
rank 0 reads the record, selects, exports, pushes and prints as if it were alone, and only where the GPUs are needed
does it call on the others, with everything they need (:func:`together`). They wait in :func:`orders` meanwhile, however
long it takes, and end when rank 0 ends. So there is nothing on which two processes could come to different conclusions.

Orders and counts go through a group of their own, gloo on the CPU without a time limit to speak of: NCCL would take an
hour of rollouts between two updates for a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

_PATIENCE = timedelta(days=30)


class LeaderFailed(Exception):
    """Rank 0 met an error, and says it; there is nothing to add to that."""


@dataclass(frozen=True, slots=True)
class _End:
    failed: bool


@dataclass(slots=True)
class _Crew:
    """`orders` is the process group that orders go through; `busy` while all ranks are in the middle of one."""

    orders: Any = None
    busy: bool = False


_crew = _Crew()


def rank() -> int:
    """Which of the processes this is, as the launcher said; 0 where there is only one."""
    return int(os.environ.get("RANK", "0"))


def launched() -> int:
    """How many processes the launcher started; 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def size() -> int:
    """How many processes work together: 1 outside :func:`joined`."""
    if _crew.orders is None:
        return 1
    from torch import distributed

    return distributed.get_world_size()


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes that the launcher started; does nothing where it started one.

    An error on rank 0 that leaves this block ends the other ranks too, unless all are in the middle of an order. Then
    they cannot hear of it, and the launcher ends them when this process is gone; so it does where another rank fails.
    """
    if launched() == 1:
        yield
        return
    import torch
    from accelerate import PartialState  # type: ignore[import-untyped, unused-ignore]
    from torch import distributed

    PartialState(cpu=not torch.cuda.is_available())  # accelerate's own, so that it finds this one later
    _crew.orders = distributed.new_group(backend="gloo", timeout=_PATIENCE)
    try:
        yield
    except BaseException:
        if rank() == 0 and not _crew.busy:
            _send(_End(failed=True))
        raise
    if rank() == 0:
        _send(_End(failed=False))
    _crew.orders = None
    distributed.destroy_process_group()


def check_joined() -> None:
    """Raise ValueError where the launcher started processes that do not work together."""
    if launched() != size():
        raise ValueError(f"this command is one process: started as {launched()}, each would do all of it")


def check_precision(bf16: bool) -> None:
    """Raise ValueError where the launcher asks for another precision than float32, and `bf16` is not wanted."""
    wanted = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if not bf16 and wanted != "no":
        raise ValueError(f"training is in float32 here, and the launcher asks for {wanted}: --mixed_precision no")


def asked(name: str) -> bool:
    """Whether the launcher asks for `name`: FSDP, DEEPSPEED or MEGATRON_LM."""
    return os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() == "true"


def splits() -> bool:
    """Whether the launcher asks for a model that is split over the processes: see :mod:`trainer.split`."""
    # DeepSpeed takes model and optimizer over on one process, too.
    return asked("DEEPSPEED") or (asked("FSDP") and launched() > 1)


def check_launch(bf16: bool) -> None:
    """Raise ValueError where the launcher asks for something that training does not do, in bfloat16 or float32."""
    check_joined()
    check_precision(bf16)
    check_splitting()


def check_splitting() -> None:
    """Raise ValueError where the launcher would split the model in a way that :mod:`trainer.split` does not know."""
    if asked("MEGATRON_LM"):
        raise ValueError("the launcher asks for MEGATRON_LM, by which TRL does not train: use FSDP or DeepSpeed")
    version = os.environ.get("FSDP_VERSION", "1")
    if asked("FSDP") and launched() > 1 and version != "2":
        raise ValueError(f"the launcher asks for FSDP{version}, whose flat shards are not known here: --fsdp_version 2")


@contextmanager
def together(order: Any) -> Iterator[None]:
    """On rank 0: give `order` (picklable) to the other ranks, and carry it out with them inside the block."""
    if size() > 1:
        _send(order)
        _crew.busy = True
    yield
    _crew.busy = False  # not after an error: then the others are still in the middle of it


def orders() -> Iterator[Any]:
    """On the other ranks: what rank 0 asks for, until it ends. Raises LeaderFailed when it ended by an error."""
    while not isinstance(order := _receive(), _End):
        yield order
    if order.failed:
        raise LeaderFailed


def gathered[T](mine: T) -> list[T]:
    """What each rank has, by rank; all ranks must call this."""
    if size() == 1:
        return [mine]
    from torch import distributed

    found: list[Any] = [None] * size()
    distributed.all_gather_object(found, mine, group=_crew.orders)
    return found


def _send(order: Any) -> None:
    from torch import distributed

    distributed.broadcast_object_list([order], src=0, group=_crew.orders)


def _receive() -> Any:
    from torch import distributed

    received: list[Any] = [None]
    distributed.broadcast_object_list(received, src=0, group=_crew.orders)
    return received[0]
