"""Push by NCCL: the weights go from the trainer's GPU to vLLM's, and vLLM's machine need not see the trainer's files.

vLLM's own trainer side does it (vllm.distributed.weight_transfer), as in its examples: a handshake once, then for each
push metadata by HTTP and tensors by broadcast, while our HTTP calls go on a thread of its own. The tensors are those of
the export on disk, so what is sent is byte for byte what a reload would read, a push can be made again after a crash,
and going back to the former weights is the same thing.

What was run, and where: the handshake's and the transfer's calls, names, dtypes and shapes, with vLLM's trainer side on
a machine without a GPU and the broadcast replaced. What was NOT run: NCCL itself, between two GPUs. NCCL refuses two
processes on one GPU, so on a machine with a single one push by reload.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trainer.push.server import PushError, WeightServer

if TYPE_CHECKING:
    from torch import Tensor

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Nccl:
    """Takes an export of the trainer. One object is one NCCL group: keep it for the whole run."""

    adapters = False

    def __init__(self) -> None:
        self._source = Export()
        self._engine: Any = None

    def check(self, server: WeightServer) -> None:
        """Open the group with the server's workers. Raises PushError without a GPU, or where the server refuses."""
        import torch

        if not torch.cuda.is_available():
            raise PushError("push by nccl needs a GPU for the trainer, and there is none here: push by reload or lora")
        if self._engine is None:
            self._engine = self._opened(server)

    def load(self, server: WeightServer, directory: Path) -> None:
        """Broadcast the tensors in `directory`. Raises PushError, after which the group is opened anew."""
        self.check(server)
        self._source.directory = directory
        try:
            self._engine.send_weights()
        except PushError:
            self._engine = None
            raise
        except Exception as error:  # NCCL's errors have no class of their own
            self._engine = None
            raise PushError(f"the transfer of {directory} failed: {type(error).__name__}: {error}") from error

    def _opened(self, server: WeightServer) -> Any:
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo, NCCLTrainerWeightTransferEngine
        from vllm.utils.network_utils import get_ip, get_open_port

        workers = int(server.call("GET", "/get_world_size")["world_size"])
        here = "127.0.0.1" if urlsplit(server.url).hostname in _LOOPBACK else get_ip()
        where = NCCLTrainerInitInfo(
            rank=0, master_address=here, master_port=get_open_port(), world_size=workers + 1, packed=True
        )
        try:
            return NCCLTrainerWeightTransferEngine.trainer_init(where, client=Control(server), source=self._source)
        except PushError as error:
            raise PushError(f"{error}. Was vLLM started with `trainer serve MODEL --nccl`, on another GPU?") from error
        except Exception as error:  # a rendezvous that fails has no class of its own
            raise PushError(f"no NCCL group with the vLLM at {server.url}: {type(error).__name__}: {error}") from error


@dataclass(slots=True)
class Control:
    """What vLLM's trainer side asks of the server (its VLLMWeightSyncClient), through our client and its errors."""

    server: WeightServer

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """The workers join the group; answered when they have."""
        self.server.call("POST", "/init_weight_transfer_engine", json={"init_info": init_info})

    def start_weight_update(self) -> None:
        """The workers make room."""
        self.server.call("POST", "/start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """The workers receive what is described; answered when they have it."""
        self.server.call("POST", "/update_weights", json={"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """The workers serve it. The version is named by whoever pushes, as with every other way."""
        self.server.call("POST", "/finish_weight_update")


@dataclass(slots=True)
class Export:
    """The tensors of an export as vLLM's trainer side wants them (its WeightSource), in one order for both channels."""

    directory: Path | None = None

    def metadata(self) -> list[Any]:
        """Name, dtype and shape of each tensor, from the files' headers alone."""
        from safetensors import safe_open
        from vllm.distributed.weight_transfer.base import ParamMeta

        found = []
        for path, names in self._files():
            with safe_open(str(path), "pt") as file:
                for name in names:
                    part = file.get_slice(name)
                    found.append(ParamMeta(name, _dtype(part.get_dtype()), tuple(part.get_shape())))
        return found

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors, on the current GPU, one at a time."""
        from safetensors import safe_open

        for path, names in self._files():
            with safe_open(str(path), "pt") as file:
                for name in names:
                    yield name, file.get_tensor(name).to(_device())

    def _files(self) -> list[tuple[Path, list[str]]]:
        """Each file with the names in it, sorted."""
        if self.directory is None:
            raise RuntimeError("no export to send")
        index = self.directory / "model.safetensors.index.json"
        if not index.is_file():
            from safetensors import safe_open

            single = self.directory / "model.safetensors"
            with safe_open(str(single), "pt") as file:
                return [(single, sorted(file.keys()))]
        places: dict[str, list[str]] = {}
        for name, place in json.loads(index.read_text())["weight_map"].items():
            places.setdefault(place, []).append(name)
        return [(self.directory / place, sorted(names)) for place, names in sorted(places.items())]


def _dtype(name: str) -> Any:
    """torch's dtype for safetensors' name of it."""
    import torch

    return {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[name]


def _device() -> str:
    return "cuda"
