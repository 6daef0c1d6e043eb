"""The messages of a push by NCCL, read by vLLM's own worker side; the broadcast itself needs two GPUs and is a copy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file

from tests.trainer.conftest import make_checkpoint
from trainer.export import export
from trainer.policy import load_policy
from trainer.push import Nccl, PushError, WeightServer, choose, nccl, swap

TRANSFER = ["/start_weight_update", "/update_weights", "/finish_weight_update"]
SWAP = ["/pause", *TRANSFER, "/reset_prefix_cache", "/update_weight_version", "/resume"]
SET_UP = ["/get_world_size", "/init_weight_transfer_engine"]


@dataclass
class Receiver:
    """A vLLM of two workers; `fail` names a path that answers 500."""

    fail: str | None = None
    calls: list[str] = field(default_factory=list)
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.calls.append(path)
        self.bodies[path] = json.loads(request.content) if request.content else {}
        if path == self.fail:
            return httpx.Response(500, text="no weight transfer engine")
        answers: dict[str, Any] = {"/get_world_size": {"world_size": 2}, "/reset_prefix_cache": {"success": True}}
        return httpx.Response(200, json=answers.get(path, {}))

    def client(self) -> WeightServer:
        return WeightServer("http://127.0.0.1:8000", transport=httpx.MockTransport(self))


@dataclass
class Wire:
    """In NCCL's place: what was broadcast, by whom to how many."""

    joined: list[dict[str, Any]] = field(default_factory=list)
    sent: dict[str, torch.Tensor] = field(default_factory=dict)

    def open(self, where: dict[str, Any]) -> Wire:
        self.joined.append(where)
        return self

    def broadcast(
        self, pairs: Iterator[tuple[str, torch.Tensor]], group: Wire, src: int, of: Callable[[Any], torch.Tensor]
    ) -> None:
        assert group is self
        assert src == 0
        self.sent = {pair[0]: of(pair) for pair in pairs}


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    from vllm.distributed.weight_transfer import nccl_common, packed_tensor

    wire = Wire()
    monkeypatch.setattr(nccl_common, "trainer_init", wire.open)
    monkeypatch.setattr(packed_tensor, "packed_nccl_broadcast_producer", wire.broadcast)
    monkeypatch.setattr(nccl, "has_gpu", lambda: True)
    monkeypatch.setattr(nccl, "_device", lambda: "cpu")
    return wire


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return export(load_policy(make_checkpoint(tmp_path / "model", tied=True, layers=1)), tmp_path / "1", version="1")


@pytest.mark.slow
def test_one_group_and_every_tensor_of_the_export(wire: Wire, weights: Path) -> None:
    from vllm.distributed.weight_transfer.nccl_common import NCCLWeightTransferInitInfo
    from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferUpdateInfo

    receiver = Receiver()
    way = choose("nccl", receiver.client(), rank=None)
    assert receiver.calls == SET_UP  # before anything is trained
    joins = NCCLWeightTransferInitInfo(**receiver.bodies["/init_weight_transfer_engine"]["init_info"])
    assert (joins.master_address, joins.rank_offset, joins.world_size, joins.packed) == ("127.0.0.1", 1, 3, True)
    assert wire.joined == [{"master_address": "127.0.0.1", "master_port": joins.master_port, "world_size": 3}]
    for version in ("1", "2"):
        receiver.calls.clear()
        swap(receiver.client(), weights, version, way)
        assert receiver.calls == SWAP
    told = NCCLWeightTransferUpdateInfo(**receiver.bodies["/update_weights"]["update_info"])
    expected = load_file(weights / "model.safetensors")
    assert told.names == list(wire.sent)
    assert set(wire.sent) == set(expected)
    for name, dtype, shape in zip(told.names, told.dtype_names, told.shapes, strict=True):
        assert wire.sent[name].dtype is getattr(torch, dtype)
        assert list(wire.sent[name].shape) == shape
        assert torch.equal(wire.sent[name], expected[name])


@pytest.mark.slow
def test_a_transfer_that_fails_resumes_and_opens_another_group(wire: Wire, weights: Path) -> None:
    receiver = Receiver(fail="/update_weights")
    way = Nccl()
    with pytest.raises(PushError, match="no weight transfer engine"):
        swap(receiver.client(), weights, "1", way)
    assert receiver.calls[-1] == "/resume"
    receiver.fail = None
    swap(receiver.client(), weights, "1", way)
    assert len(wire.joined) == 2


@pytest.mark.slow
def test_what_nccl_meets_is_told(wire: Wire, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.weight_transfer import packed_tensor

    def broken(*_: object) -> None:
        raise RuntimeError("unhandled system error")

    monkeypatch.setattr(packed_tensor, "packed_nccl_broadcast_producer", broken)
    with pytest.raises(PushError, match="NCCL failed: RuntimeError: unhandled system error"):
        swap(Receiver().client(), weights, "1", Nccl())


@pytest.mark.slow
def test_a_server_without_it_is_known_before_training(wire: Wire) -> None:
    with pytest.raises(PushError, match=r"no weight transfer engine.*trainer serve MODEL --nccl"):
        choose("nccl", Receiver(fail="/init_weight_transfer_engine").client(), rank=None)


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "has_gpu", lambda: False)
    monkeypatch.setitem(sys.modules, "vllm", None)  # it must not get that far
    receiver = Receiver()
    with pytest.raises(PushError, match=r"push by nccl needs a GPU .* push by reload or lora"):
        choose("nccl", receiver.client(), rank=None)
    assert receiver.calls == []


def test_an_export_of_several_files(tmp_path: Path) -> None:
    policy = load_policy(make_checkpoint(tmp_path / "model", layers=1))
    policy.base.save_pretrained(tmp_path / "parts", max_shard_size="100KB")
    files = nccl.tensor_files(tmp_path / "parts")
    assert len(files) > 1
    expected = {name: list(tensor.shape) for name, tensor in policy.model.state_dict().items()}
    told = nccl.manifest(files)
    assert dict(zip(told["names"], told["shapes"], strict=True)) == expected
    assert set(told["dtype_names"]) == {"float32"}
