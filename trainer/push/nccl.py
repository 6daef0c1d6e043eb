"""Push by NCCL: the weights go from the trainer's GPU to vLLM's, and vLLM's machine need not see the trainer's files.

The way of TRL's own WeightTransferClient, on vLLM's two public helpers: a rendezvous once, then for each push the
names, dtypes and shapes by HTTP while the tensors are broadcast. NCCL has no timeout and cannot be interrupted, so it
runs on a thread of its own: a failure is the server's HTTP error, not a hang, and the thread is left behind. What is
sent is read from the export on disk, so it is byte for byte what a reload would read, a push can be made again after a
crash, and going back to the former weights is the same thing.

What was run, and where: all of this against a scripted server on a machine without a GPU, with vLLM's worker side
reading the messages and the broadcast replaced by a copy. What was NOT run: NCCL itself, between two GPUs. NCCL refuses
two processes on one GPU, so on a machine with a single one push by reload.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trainer.push.server import PushError, WeightServer

if TYPE_CHECKING:
    from torch import Tensor

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""torch's names for safetensors' names."""


class Nccl:
    """Takes an export of the trainer. One object is one NCCL group: keep it for the whole run."""

    adapters = False

    def __init__(self) -> None:
        self._group: Any = None

    def check(self, server: WeightServer) -> None:
        """Open the group with the server's workers. Raises PushError without a GPU, or where the server refuses."""
        if not has_gpu():
            raise PushError("push by nccl needs a GPU for the trainer, and there is none here: push by reload or lora")
        if self._group is None:
            self._group = _rendezvous(server)

    def load(self, server: WeightServer, directory: Path) -> None:
        """Broadcast the tensors in `directory`. Raises PushError, after which the next push opens the group anew."""
        from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_producer

        self.check(server)
        group, self._group = self._group, None
        files = tensor_files(directory)
        server.call("POST", "/start_weight_update")
        _beside(
            lambda: packed_nccl_broadcast_producer(tensors(files), group, 0, lambda item: item[1]),
            lambda: server.call("POST", "/update_weights", json={"update_info": manifest(files)}),
        )
        server.call("POST", "/finish_weight_update")
        self._group = group


def _rendezvous(server: WeightServer) -> Any:
    """Rank 0 of a group whose other ranks are the server's workers."""
    from vllm.distributed.weight_transfer.nccl_common import trainer_init
    from vllm.utils.network_utils import get_ip, get_open_port

    workers = int(server.call("GET", "/get_world_size")["world_size"])
    where = {
        "master_address": "127.0.0.1" if urlsplit(server.url).hostname in _LOOPBACK else get_ip(),
        "master_port": get_open_port(),
        "world_size": workers + 1,
    }
    joined = {**where, "rank_offset": 1, "packed": True}
    try:
        return _beside(
            lambda: trainer_init(where),
            lambda: server.call("POST", "/init_weight_transfer_engine", json={"init_info": joined}),
        )
    except PushError as error:
        raise PushError(f"{error}. Was vLLM started with `trainer serve MODEL --nccl`, on another GPU?") from error


def _beside(nccl: Callable[[], Any], asked: Callable[[], object]) -> Any:
    """Do `nccl` on a thread while the server is `asked` to do its side; what `nccl` returned.

    Raises PushError: the server's, which leaves the thread where it is, or what NCCL met.
    """
    done: list[Any] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            done.append(nccl())
        except Exception as error:  # noqa: BLE001 - its errors have no class of their own; raised below
            failed.append(error)

    thread = threading.Thread(target=run, name="nccl", daemon=True)
    thread.start()
    asked()
    thread.join()
    if failed:
        raise PushError(f"NCCL failed: {type(failed[0]).__name__}: {failed[0]}") from failed[0]
    return done[0]


def tensor_files(export: Path) -> list[tuple[Path, list[str]]]:
    """The files of an export, each with the names of its tensors: the order in which everything is sent."""
    from safetensors import safe_open

    index = export / "model.safetensors.index.json"
    if not index.is_file():
        single = export / "model.safetensors"
        with safe_open(str(single), "pt") as file:
            return [(single, sorted(file.keys()))]
    places: dict[str, list[str]] = {}
    for name, place in json.loads(index.read_text())["weight_map"].items():
        places.setdefault(place, []).append(name)
    return [(export / place, sorted(names)) for place, names in sorted(places.items())]


def manifest(files: list[tuple[Path, list[str]]]) -> dict[str, list[Any]]:
    """What the workers size their buffers by: `names`, `dtype_names` and `shapes`, from the files' headers alone."""
    from safetensors import safe_open

    told: dict[str, list[Any]] = {"names": [], "dtype_names": [], "shapes": []}
    for path, names in files:
        with safe_open(str(path), "pt") as file:
            for name in names:
                part = file.get_slice(name)
                told["names"].append(name)
                told["dtype_names"].append(_DTYPES[part.get_dtype()])
                told["shapes"].append(list(part.get_shape()))
    return told


def tensors(files: list[tuple[Path, list[str]]]) -> Iterator[tuple[str, Tensor]]:
    """The tensors themselves, on the GPU, one at a time, in the manifest's order."""
    from safetensors import safe_open

    for path, names in files:
        with safe_open(str(path), "pt") as file:
            for name in names:
                yield name, file.get_tensor(name).to(_device())


def has_gpu() -> bool:
    """Whether torch has one here."""
    import torch

    return torch.cuda.is_available()


def _device() -> str:
    return "cuda"
