"""Weights into a real, running vLLM: they arrive, the probe proves it, and what goes wrong silently is caught."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import RunningVllm, make_checkpoint
from tests.trainer.in_flight import sample_across
from trainer.export import export
from trainer.policy import load_policy, token_logprobs
from trainer.push import PushMismatch, WeightServer, push, swap

pytestmark = pytest.mark.vllm

# Longer than a block of the prefix cache (128 tokens on CPU), or a stale cache could not be seen.
PROMPTS = [[4 + (7 * i + k) % 250 for i in range(300)] for k in range(3)]


@dataclass
class Weights:
    """An export with the trainer's own scores for it."""

    path: Path

    def score(self, ids: Sequence[int], start: int) -> list[float]:
        return token_logprobs(load_policy(self.path).model, ids, start)


@pytest.fixture
def other(tmp_path: Path) -> Weights:
    """Different weights of the same shape, as the trainer exports them."""
    policy = load_policy(make_checkpoint(tmp_path / "source", seed=1))
    return Weights(export(policy, tmp_path / "weights", version="1"))


@pytest.fixture
def first(tmp_path: Path, vllm: RunningVllm) -> Weights:
    """The weights the server began with; put back here, so that every test starts alike."""
    policy = load_policy(vllm.checkpoint)
    weights = Weights(export(policy, tmp_path / "first", version="0"))
    with WeightServer(vllm.url) as server:
        push(server, weights.path, "0", prompts=PROMPTS, score=weights.score)
    return weights


def test_push_changes_the_policy_exactly(vllm: RunningVllm, first: Weights, other: Weights) -> None:
    with WeightServer(vllm.url) as server:
        done = push(server, other.path, "1", prompts=PROMPTS, score=other.score)
        assert done.gap < 1e-3
        assert server.version() == "1"
        ids, served = server.sample(PROMPTS[0], 8, seed=3)
        old = first.score([*PROMPTS[0], *ids], len(PROMPTS[0]))
        assert max(abs(a - b) for a, b in zip(served, old, strict=True)) > 0.1


def test_push_of_a_tied_policy(vllm: RunningVllm, first: Weights, tied_checkpoint: Path, tmp_path: Path) -> None:
    policy = load_policy(tied_checkpoint)
    assert policy.tied
    weights = Weights(export(policy, tmp_path / "tied", version="1"))
    with WeightServer(vllm.url) as server:
        assert push(server, weights.path, "1", prompts=PROMPTS, score=weights.score).gap < 1e-3


def test_wrong_weights_are_taken_back(vllm: RunningVllm, first: Weights, other: Weights, tmp_path: Path) -> None:
    """A head that is missing from the export stays what it was before: vLLM answers 200 and serves a mixture."""
    from safetensors.torch import load_file, save_file

    broken = shutil.copytree(other.path, tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with WeightServer(vllm.url) as server:
        with pytest.raises(PushMismatch) as caught:
            push(server, broken, "1", prompts=PROMPTS, score=other.score, fallback=first.path)
        assert max(probe.gap for probe in caught.value.probes) > 0.01
        assert server.version() == "0"
        ids, served = server.sample(PROMPTS[0], 8)
        expected = first.score([*PROMPTS[0], *ids], len(PROMPTS[0]))
        assert max(abs(a - b) for a, b in zip(served, expected, strict=True)) < 1e-3


def test_a_stale_prefix_cache_is_caught(vllm: RunningVllm, first: Weights, other: Weights) -> None:
    """The third step left out: the probe's prompts still have keys and values of the old weights."""

    class Forgetful(WeightServer):
        def call(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
            if path == "/reset_prefix_cache":
                return {"success": True}
            if path == "/pause":  # which clears the cache too, when nothing is in flight
                kwargs["params"]["clear_cache"] = "false"
            return super().call(method, path, **kwargs)

    with Forgetful(vllm.url) as server, pytest.raises(PushMismatch):
        push(server, other.path, "1", prompts=PROMPTS, score=other.score)


def _gap(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def test_a_request_in_flight_goes_on_under_the_new_weights(vllm: RunningVllm, first: Weights, other: Weights) -> None:
    """Its head was sampled by the old weights and its tail by the new, and each logprob says so exactly."""
    for _ in range(5):
        with WeightServer(vllm.url) as server:
            swap(server, first.path, "0")
            ids, logprobs = sample_across(
                vllm.url, str(vllm.checkpoint), PROMPTS[0], lambda: swap(server, other.path, "1")
            )
        old = first.score([*PROMPTS[0], *ids], len(PROMPTS[0]))
        new = other.score([*PROMPTS[0], *ids], len(PROMPTS[0]))
        assert _gap(logprobs[:10], old[:10]) < 1e-3
        if _gap(logprobs[-10:], old[-10:]) >= 1e-3:
            assert _gap(logprobs[-10:], new[-10:]) < 1e-3
            return
    pytest.skip("the request was over before the swap each time: this machine schedules the two too far apart")
