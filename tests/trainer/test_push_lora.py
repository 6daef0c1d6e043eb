"""Adapters pushed alone, and the choice of the way, against a scripted server; the real one is in
test_push_lora_vllm.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainer.push import HotLoad, PushError, PushMismatch, Reload, WeightServer, choose, push
from trainer.push.lora import adapter_rank


@dataclass
class Adapting:
    """A vLLM that was started on the adapter in `first`, if any. Logprobs are -1 under it and the base, else -2."""

    first: Path | None = None
    adapter: str = ""
    version: str = "3"
    calls: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        body: dict[str, Any] = json.loads(request.content) if request.content else {}
        if path not in ("/v1/models", "/v1/completions", "/weight_info"):
            self.calls.append(path if path != "/collective_rpc" else body["method"])
        if path == "/collective_rpc":
            self.adapter = body["kwargs"]["path"]
            if "broken" in self.adapter:
                return httpx.Response(500, text="adapter has unexpected modules")
        if path == "/update_weight_version":
            self.version = body["new_version"]
        if path == "/v1/completions":
            self.asked.append(body["model"])
        models: list[dict[str, Any]] = [{"id": "base", "root": "/model"}]
        if self.first is not None:
            models.append({"id": "policy", "root": str(self.first), "parent": "base"})
        logprob = -1.0 if self.adapter in ("", str(self.first)) else -2.0
        answers: dict[str, Any] = {
            "/v1/models": {"data": models},
            "/weight_info": {"weight_version": self.version},
            "/reset_prefix_cache": {"success": True},
            "/v1/completions": {
                "choices": [{"token_ids": [5, 6], "logprobs": {"token_logprobs": [logprob] * 2}}],
            },
        }
        return httpx.Response(200, json=answers.get(path, {}))

    def client(self) -> WeightServer:
        return WeightServer("http://vllm", transport=httpx.MockTransport(self))


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The adapter of rank 8 that a server was started on."""
    folder = tmp_path / "first"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"r": 8}')
    return folder


def test_the_adapter_alone_is_loaded_while_the_server_is_paused(first: Path) -> None:
    fake = Adapting(first)
    done = push(
        fake.client(), Path("/new"), "4", prompts=[[1, 2]], score=lambda ids, start: [-2.0, -2.0], way=HotLoad()
    )
    assert fake.calls == ["/pause", "swap_adapter", "/reset_prefix_cache", "/update_weight_version", "/resume"]
    assert (done.version, fake.version, fake.adapter) == ("4", "4", "/new")
    assert set(fake.asked) == {"policy"}


def test_a_mismatch_gives_back_the_former_adapter(first: Path) -> None:
    fake = Adapting(first)
    with pytest.raises(PushMismatch, match="again"):
        push(
            fake.client(),
            Path("/new"),
            "4",
            prompts=[[1]],
            score=lambda ids, start: [-2.5, -2.0],
            way=HotLoad(),
            fallback=first,
        )
    assert (fake.version, fake.adapter) == ("3", str(first))


def test_an_adapter_that_vllm_refuses_changes_nothing(first: Path) -> None:
    fake = Adapting(first)
    with pytest.raises(PushError, match="unexpected modules"):
        push(
            fake.client(),
            Path("/broken"),
            "4",
            prompts=[[1]],
            score=lambda ids, start: [-2.0, -2.0],
            way=HotLoad(),
            fallback=first,
        )
    assert (fake.version, fake.adapter) == ("3", str(first))
    assert fake.calls.count("/pause") == fake.calls.count("/resume") == 2


def test_the_base_is_asked_where_there_is_no_adapter(first: Path) -> None:
    assert Adapting().client().model() == "base"
    assert Adapting().client().first_adapter() is None
    assert Adapting(first).client().model() == "policy"
    assert Adapting(first).client().first_adapter() == first


def test_the_way_is_chosen_by_what_both_sides_have(first: Path) -> None:
    assert isinstance(choose(None, Adapting().client(), rank=None), Reload)
    assert isinstance(choose(None, Adapting().client(), rank=8), Reload)
    assert isinstance(choose(None, Adapting(first).client(), rank=None), Reload)
    assert isinstance(choose(None, Adapting(first).client(), rank=8), HotLoad)
    assert isinstance(choose("reload", Adapting(first).client(), rank=8), Reload)


def test_what_cannot_work_is_said_before_training(first: Path) -> None:
    with pytest.raises(ValueError, match=r"needs adapters.*--lora-rank"):
        choose("lora", Adapting(first).client(), rank=None)
    with pytest.raises(PushError, match=r"takes no adapters.*trainer serve MODEL --lora-rank 8"):
        choose("lora", Adapting().client(), rank=8)
    with pytest.raises(PushError, match=r"rank 16.*started for rank 8"):
        choose(None, Adapting(first).client(), rank=16)


def test_no_adapter_in_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no adapter in"):
        adapter_rank(tmp_path)
