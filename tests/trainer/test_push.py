"""The five steps and their order, against a scripted server; the real one is in test_push_vllm.py."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainer.push import DevModeOff, PushError, PushMismatch, WeightServer, next_version, push, swap

LOGPROBS = {"/old": -1.0}


@dataclass
class FakeVllm:
    """Serves logprob -1 under the weights "/old", -2 under others; `fail` names a path that answers 500."""

    weights: str = "/old"
    version: str = "3"
    fail: str | None = None
    missing: bool = False
    reset_works: bool = True
    calls: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        body: dict[str, Any] = json.loads(request.content) if request.content else {}
        if path not in ("/v1/models", "/v1/completions", "/weight_info"):
            self.calls.append(path)
            if self.missing:
                return httpx.Response(404, json={"detail": "Not Found"})
        if path == self.fail:
            return httpx.Response(500, text="boom")
        if path == "/collective_rpc":
            self.weights = body["kwargs"]["weights_path"]
        if path == "/update_weight_version":
            self.version = body["new_version"]
        if path == "/reset_prefix_cache":
            assert request.url.params["reset_running_requests"] == "true"
        if path == "/pause":
            assert request.url.params["mode"] == "keep"
        answers: dict[str, Any] = {
            "/v1/models": {"data": [{"id": "m"}]},
            "/weight_info": {"weight_version": self.version},
            "/reset_prefix_cache": {"success": self.reset_works},
            "/v1/completions": {
                "choices": [
                    {"token_ids": [5, 6], "logprobs": {"token_logprobs": [LOGPROBS.get(self.weights, -2.0)] * 2}}
                ]
            },
        }
        return httpx.Response(200, json=answers.get(path, {}))

    def client(self) -> WeightServer:
        return WeightServer("http://vllm", transport=httpx.MockTransport(self))


STEPS = ["/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/resume"]


def test_five_steps_in_order() -> None:
    fake = FakeVllm()
    done = push(fake.client(), Path("/new"), "4", prompts=[[1, 2], [3]], score=lambda ids, start: [-2.0, -2.0])
    assert fake.calls == STEPS
    assert (done.version, done.gap, done.probes, fake.version, fake.weights) == ("4", 0.0, 2, "4", "/new")


def test_mismatch_gives_back_version_and_weights() -> None:
    fake = FakeVllm()
    with pytest.raises(PushMismatch, match=r"0\.5 nats .*: -2\.0000/-2\.5000.*/old.*version 3") as caught:
        push(
            fake.client(),
            Path("/new"),
            "4",
            prompts=[[1]],
            score=lambda ids, start: [-2.5, -2.0],
            fallback=Path("/old"),
        )
    assert (fake.version, fake.weights) == ("3", "/old")
    assert fake.calls == STEPS * 2
    assert caught.value.probes[0].sampled == (5, 6)


def test_mismatch_without_fallback_keeps_the_old_version() -> None:
    fake = FakeVllm()
    with pytest.raises(PushMismatch, match="unproven weights"):
        push(fake.client(), Path("/new"), "4", prompts=[[1]], score=lambda ids, start: [float("nan"), 0.0])
    assert fake.version == "3"


@pytest.mark.parametrize("path", ["/collective_rpc", "/reset_prefix_cache", "/update_weight_version"])
def test_a_step_that_fails_still_resumes(path: str) -> None:
    fake = FakeVllm(fail=path)
    with pytest.raises(PushError, match="500"):
        push(fake.client(), Path("/new"), "4", prompts=[[1]], score=lambda ids, start: [-2.0, -2.0])
    assert fake.calls.count("/resume") == fake.calls.count("/pause")
    assert fake.version == "3"


def test_a_cache_that_was_not_reset_is_an_error() -> None:
    fake = FakeVllm(reset_works=False)
    with pytest.raises(PushError, match="prefix cache"):
        push(fake.client(), Path("/new"), "4", prompts=[[1]], score=lambda ids, start: [-2.0, -2.0])
    assert "/resume" in fake.calls


def test_dev_mode_off_says_what_to_do() -> None:
    with pytest.raises(DevModeOff, match=r"/pause .*trainer serve.*VLLM_SERVER_DEV_MODE=1"):
        swap(FakeVllm(missing=True).client(), Path("/new"), "4")


def test_nobody_there() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(PushError, match="no vLLM answers at http://vllm"):
        WeightServer("http://vllm", transport=httpx.MockTransport(refuse)).version()


def test_versions_only_go_up() -> None:
    assert next_version("default") == "1"
    assert next_version("9") == "10"
    assert next_version("default", at_least=7) == "8"
    with pytest.raises(ValueError, match="'v7'"):
        next_version("v7")
