"""The ways by which weights come into a running vLLM, and the choice among them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from trainer.push.lora import HotLoad
from trainer.push.nccl import Nccl
from trainer.push.reload import Reload
from trainer.push.server import WeightServer

WayName = Literal["reload", "lora", "nccl"]


class Way(Protocol):
    """How the content of a directory replaces what a paused server has."""

    @property
    def adapters(self) -> bool:
        """Whether the directory holds an adapter alone; otherwise it is a whole checkpoint."""

    def check(self, server: WeightServer) -> None:
        """Raise PushError when this machine or this server cannot do it: before minutes of training, not after."""

    def load(self, server: WeightServer, directory: Path) -> None:
        """Load `directory` into `server`, which is paused. Raises PushError."""


def choose(name: WayName | None, server: WeightServer, *, rank: int | None) -> Way:
    """The way called `name`, checked; None takes adapters to a server that was started for them, and files to others.

    `rank` is that of the adapters which are trained, None where all weights are.

    Raises PushError for a server or machine that cannot do it, ValueError for adapters that are not trained.
    """
    if name is None:
        name = "lora" if rank is not None and server.first_adapter() is not None else "reload"
    if name == "lora" and rank is None:
        raise ValueError("push by lora needs adapters, and all weights are trained: say --lora-rank, or push by reload")
    way: Way
    match name:
        case "reload":
            way = Reload()
        case "lora":
            way = HotLoad(rank)
        case "nccl":
            way = Nccl()
    way.check(server)
    return way
