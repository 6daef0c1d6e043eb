"""Adapters hot-loaded into a real vLLM: they arrive, in flight too, and are what the proxy's calls are sampled with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from addons.service import Service, ServiceOptions
from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder
from tests.conftest import TINY
from tests.trainer.in_flight import sample_across
from tests.trainer.recording import record_session, record_turn
from trainer import serve
from trainer.adapters import Lora
from trainer.grpo import Settings
from trainer.intake import Intake
from trainer.policy import load_policy, token_logprobs
from trainer.push import HotLoad, PushError, PushMismatch, Score, WeightServer, choose, push, swap
from trainer.training import TrainingRun

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

# Longer than a block of the prefix cache (128 tokens on CPU), or a stale cache could not be seen.
PROMPTS = [[20 + (7 * i + k) % 2000 for i in range(300)] for k in range(3)]
RANK = 4


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real vLLM on the tiny model, started for adapters."""
    folder = tmp_path_factory.mktemp("vllm")
    options = serve.ServeOptions(
        model=str(TINY), kv_cache_gib=1, max_model_len=4096, lora_rank=RANK, extra=("--max-num-seqs", "8")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESSTAP_HOME", str(folder))
        with serve.running(options, log=folder / "vllm.log") as address:
            yield address


@pytest.fixture
def server(url: str) -> Iterator[WeightServer]:
    """With the adapter and the version that it began with, before and after."""
    with WeightServer(url) as server:
        yield server
        _as_begun(server)


def _as_begun(server: WeightServer) -> None:
    first = server.first_adapter()
    assert first is not None
    swap(server, first, "default", HotLoad())


@dataclass
class Adapter:
    path: Path
    score: Score


def make_adapter(folder: Path, seed: int, rank: int = RANK) -> Adapter:
    policy = load_policy(TINY)
    torch.manual_seed(seed)
    policy.adapt(Lora(rank=rank))
    for name, parameter in policy.model.named_parameters():
        if ".lora_B." in name:
            parameter.data.normal_(0, 0.1)
    policy.model.save_pretrained(str(folder / str(seed)))
    return Adapter(folder / str(seed), lambda ids, start: token_logprobs(policy.model, ids, start))


def base_score(ids: Sequence[int], start: int) -> list[float]:
    return token_logprobs(load_policy(TINY).model, ids, start)


def gap(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def sampled_by(server: WeightServer, model: str) -> tuple[list[int], list[float]]:
    """Tokens sampled under the name `model`, after the first prompt, and their logprobs."""
    body = {
        "model": model, "prompt": PROMPTS[0], "max_tokens": 8, "temperature": 1.0, "logprobs": 0,
        "return_token_ids": True, "ignore_eos": True,
    }  # fmt: skip
    [choice] = server.call("POST", "/v1/completions", json=body)["choices"]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def test_two_hot_loads(server: WeightServer, tmp_path: Path) -> None:
    """Each is served at once, exactly, and only under its name; the first adapter is the base model again."""
    for version in ("1", "2"):
        adapter = make_adapter(tmp_path, int(version))
        done = push(server, adapter.path, version, prompts=PROMPTS, score=adapter.score, way=HotLoad())
        assert done.gap < 1e-3
        assert server.version() == version
        ids, logprobs = sampled_by(server, "policy")
        assert gap(logprobs, base_score([*PROMPTS[0], *ids], 300)) > 0.1
        ids, logprobs = sampled_by(server, str(TINY))
        assert gap(logprobs, base_score([*PROMPTS[0], *ids], 300)) < 1e-3
    _as_begun(server)
    ids, logprobs = sampled_by(server, "policy")
    assert gap(logprobs, base_score([*PROMPTS[0], *ids], 300)) < 1e-3


def test_a_stale_prefix_cache_is_caught(url: str, server: WeightServer, tmp_path: Path) -> None:
    class Forgetful(WeightServer):
        def call(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
            if path == "/reset_prefix_cache":
                return {"success": True}
            if path == "/pause":  # which clears the cache too, when nothing is in flight
                kwargs["params"]["clear_cache"] = "false"
            return super().call(method, path, **kwargs)

    adapter = make_adapter(tmp_path, 1)
    with Forgetful(url) as forgetful, pytest.raises(PushMismatch):
        push(forgetful, adapter.path, "1", prompts=PROMPTS, score=adapter.score, way=HotLoad())


def test_what_does_not_fit_leaves_the_former_adapter(server: WeightServer, tmp_path: Path) -> None:
    good, large = make_adapter(tmp_path, 1), make_adapter(tmp_path, 2, rank=32)
    push(server, good.path, "1", prompts=PROMPTS, score=good.score, way=HotLoad())
    with pytest.raises(PushError, match="rank 32 is greater"):
        push(server, large.path, "2", prompts=PROMPTS, score=large.score, way=HotLoad(), fallback=good.path)
    with pytest.raises(PushMismatch, match="again"):
        push(server, large.path.parent / "1", "2", prompts=PROMPTS, score=base_score, way=HotLoad(), fallback=good.path)
    ids, logprobs = sampled_by(server, "policy")
    assert gap(logprobs, good.score([*PROMPTS[0], *ids], 300)) < 1e-3
    assert server.version() == "1"
    with pytest.raises(PushError, match=r"rank 32.*started for rank 4"):
        choose("lora", server, rank=32)


def test_a_request_in_flight_goes_on_under_the_new_adapter(server: WeightServer, tmp_path: Path) -> None:
    """Also the second time, when it began under an adapter that came into the server like that."""
    old, new = make_adapter(tmp_path, 1), make_adapter(tmp_path, 2)
    for _ in range(5):
        swap(server, old.path, "1", HotLoad())
        ids, logprobs = sample_across(server.url, "policy", PROMPTS[0], lambda: swap(server, new.path, "2", HotLoad()))
        everything = [*PROMPTS[0], *ids]
        assert gap(logprobs[:10], old.score(everything, 300)[:10]) < 1e-3
        if gap(logprobs[-10:], old.score(everything, 300)[-10:]) >= 1e-3:
            assert gap(logprobs[-10:], new.score(everything, 300)[-10:]) < 1e-3
            return
    pytest.skip("the request was over before the swap each time: this machine schedules the two too far apart")


async def test_calls_through_the_gateway_are_sampled_with_the_adapter(server: WeightServer, tmp_path: Path) -> None:
    """Before and after a push that the gateway is not told of; each turn has the version that sampled it."""
    store_url = f"sqlite:///{tmp_path / 'record.db'}"
    service = Service(ServiceOptions(engine=server.url, store=store_url))
    port = await service.start()
    scores: dict[str, Score] = {"default": base_score}
    body = {"model": "m", "messages": [{"role": "user", "content": "List the files."}], "max_tokens": 8}
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            for version in ("default", "1", "2"):
                if version != "default":
                    adapter = make_adapter(tmp_path, int(version))
                    swap(server, adapter.path, version, HotLoad())
                    scores[version] = adapter.score
                reply = await client.post("/v1/chat/completions", json={**body, "user": version})
                assert reply.status_code == 200, reply.text
    finally:
        await service.stop()
    with Store.open(store_url) as store:
        reader = Reader(store)
        turns = [turn for session in reader.sessions() for turn in reader.turns(session)]
        assert sorted(str(turn.weight_version_end) for turn in turns) == ["1", "2", "default"]
        for turn in turns:
            prompt, (ids, logprobs) = reader.prompt_ids(turn), reader.sampled(turn)
            expected = scores[str(turn.weight_version_end)]([*prompt, *ids], len(prompt))
            assert gap(logprobs, expected) < 1e-3


def test_training_on_what_the_adapters_sampled(server: WeightServer, tmp_path: Path) -> None:
    """Two updates, hot-loaded; then vLLM starts again: it has the first adapter and no version, and gets the last."""
    settings = Settings(learning_rate=1e-2, gradient_checkpointing=False, lora=Lora(rank=RANK))
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store, Recorder(store) as recorder:
        training = TrainingRun.open(tmp_path / "run", str(TINY), settings)
        training.way = choose(None, server, rank=RANK)
        for version in ("1", "2"):
            for index, reward in enumerate((1.0, 0.0, 0.0)):
                session = record_session(recorder, f"{version}.{index}", group=version, reward=reward)
                ids, logprobs = server.sample(PROMPTS[0], 12, seed=index)
                record_turn(recorder, session, PROMPTS[0], ids, logprobs, version=server.version())
            report = training.step(Reader(store), recorder, Intake(), server=server)
            assert report.pushed is not None
            assert (report.version, server.version()) == (version, version)
            assert report.pushed.gap < 1e-3
            assert report.metrics.logprob_gap_max < 1e-3  # sampled by the very policy that is trained
        _as_begun(server)
        again = TrainingRun.open(tmp_path / "run", str(TINY), settings)
        again.way = choose(None, server, rank=RANK)
        late = again.catch_up(server)
        assert late is not None
        assert (late.version, server.version()) == ("2", "2")
        assert again.catch_up(server) is None
