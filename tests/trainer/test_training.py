"""The training loop over a real store, against a server that is transformers behind vLLM's endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file
from sqlalchemy import update

from replay.batches import load_batch
from replay.reader import Reader
from replay.schema import Turn
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.conftest import make_checkpoint
from tests.trainer.recording import record_session, record_turn
from trainer.adapters import Lora
from trainer.advantages import NothingToTrain
from trainer.grpo import Settings
from trainer.intake import Intake
from trainer.policy import load_policy, token_logprobs
from trainer.push import PushError, WeightServer
from trainer.rebuild import Changed, digest, rebuild, step_again
from trainer.selection import Choice
from trainer.training import TrainingRun, probe_prompts

pytestmark = pytest.mark.slow


@dataclass
class ModelServer:
    """Serves `weights` the way vLLM does; `broken` makes reloads fail."""

    weights: Path
    version: str = "default"
    broken: bool = False
    model: Any = field(init=False)

    def __post_init__(self) -> None:
        self.model = load_policy(self.weights).model

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body: dict[str, Any] = json.loads(request.content) if request.content else {}
        match request.url.path:
            case "/collective_rpc" if self.broken:
                return httpx.Response(500, text="no space left on device")
            case "/collective_rpc":
                self.weights = Path(body["kwargs"]["weights_path"])
                self.model = load_policy(self.weights).model
            case "/update_weight_version":
                self.version = body["new_version"]
            case "/weight_info":
                return httpx.Response(200, json={"weight_version": self.version})
            case "/v1/models":
                return httpx.Response(200, json={"data": [{"id": "m"}]})
            case "/reset_prefix_cache":
                return httpx.Response(200, json={"success": True})
            case "/v1/completions":
                ids = self.sample(body["prompt"], body["max_tokens"], body["seed"] or 0)
                found = token_logprobs(self.model, [*body["prompt"], *ids], len(body["prompt"]))
                return httpx.Response(
                    200, json={"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": found}}]}
                )
        return httpx.Response(200, json={})

    def sample(self, prompt: list[int], tokens: int, seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        ids = list(prompt)
        for _ in range(tokens):
            with torch.inference_mode():
                logits = self.model(input_ids=torch.tensor([ids])).logits[0, -1]
            ids.append(int(torch.multinomial(logits.softmax(-1), 1, generator=generator)))
        return ids[len(prompt) :]

    def client(self) -> WeightServer:
        return WeightServer("http://vllm", transport=httpx.MockTransport(self))

    def roll_out(self, recorder: Recorder, group: str, rewards: list[float]) -> None:
        """A group of two-turn sessions, sampled from the weights served now."""
        for index, reward in enumerate(rewards):
            session = record_session(recorder, f"{group}.{index}", group=group, reward=reward)
            parent, ids = None, []
            for turn in range(2):
                suffix = [5 + turn, 6, 7 + index]
                ids += suffix
                sampled = self.sample(ids, 5, seed=10 * index + turn)
                logprobs = token_logprobs(self.model, [*ids, *sampled], len(ids))
                parent = record_turn(recorder, session, suffix, sampled, logprobs, parent=parent, version=self.version)
                ids += sampled


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        yield store


SETTINGS = Settings(learning_rate=1e-3, gradient_checkpointing=False)


@pytest.mark.parametrize("tied", [False, True])
def test_a_closed_loop(tmp_path: Path, store: Store, tied: bool) -> None:
    model = make_checkpoint(tmp_path / "model", tied=tied, layers=1)
    server = ModelServer(model)
    with Recorder(store) as recorder, server.client() as client:
        training = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        for version in ("1", "2"):
            server.roll_out(recorder, f"g{version}", [1.0, 0.0, 0.0])
            report = training.step(Reader(store), recorder, Intake(), server=client)
            assert report.version == server.version == version
            assert server.weights == report.weights == (tmp_path / "out" / "weights" / version).resolve()
            assert report.pushed is not None
            assert report.pushed.gap < 1e-3
            # Sampled by the very weights that are trained, so the ratio is 1.
            assert report.metrics.logprob_gap_max < 1e-4
            assert report.metrics.tokens_trained == 3 * 2 * 5
            assert report.selection.weight_versions == {"default" if version == "1" else "1": 30}
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["version"] for line in lines] == [1, 2]
    assert Reader(store).groups() == []


def test_a_restart_changes_nothing(tmp_path: Path, store: Store) -> None:
    """Two steps in one process and in two give the same weights: the optimizer's moments come along."""
    model = make_checkpoint(tmp_path / "model", layers=1)
    server = ModelServer(model)
    made = {}
    for out, restart in (("one", False), ("two", True)):
        with Recorder(store) as recorder:
            training = TrainingRun.open(tmp_path / out, str(model), SETTINGS)
            for step in range(2):
                server.roll_out(recorder, f"{out}{step}", [1.0, 0.0])
                if restart and step:
                    training = TrainingRun.open(tmp_path / out, str(model), SETTINGS)
                    assert training.version == 1
                report = training.step(Reader(store), recorder, Intake())
        made[out] = load_file(report.weights / "model.safetensors")
    moved = load_file(model / "model.safetensors")
    for name, tensor in made["one"].items():
        assert torch.allclose(tensor, made["two"][name], atol=1e-7), name
        assert not torch.equal(tensor, moved[name]), name


def test_a_push_that_fails_loses_nothing(tmp_path: Path, store: Store) -> None:
    model = make_checkpoint(tmp_path / "model", layers=1)
    server = ModelServer(model, version="4", broken=True)
    with Recorder(store) as recorder, server.client() as client:
        server.roll_out(recorder, "g", [1.0, 0.0])
        training = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        with pytest.raises(PushError, match="no space left"):
            training.step(Reader(store), recorder, Intake(), server=client)
        assert server.version == "4"
        assert TrainingRun.open(tmp_path / "out", str(model), SETTINGS).version == 5
        assert (tmp_path / "out" / "weights" / "5" / "model.safetensors").is_file()
        assert Reader(store).groups() == []


def test_old_exports_are_pruned(tmp_path: Path, store: Store) -> None:
    model = make_checkpoint(tmp_path / "model", layers=1)
    server = ModelServer(model)
    with Recorder(store) as recorder:
        training = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        for step in range(5):
            if step == 1:  # gone on with: the weights that it was loaded from are pruned, too
                training = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
            server.roll_out(recorder, f"g{step}", [1.0, 0.0])
            training.step(Reader(store), recorder, Intake())
    assert sorted(p.name for p in (tmp_path / "out" / "weights").iterdir()) == ["3", "4", "5"]
    assert sorted(p.name for p in (tmp_path / "out" / "optimizer").iterdir()) == ["4.pt", "5.pt"]


def test_refusals(tmp_path: Path, store: Store, checkpoint: Path) -> None:
    model = make_checkpoint(tmp_path / "model", layers=1)
    server = ModelServer(model)
    with Recorder(store) as recorder:
        training = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        with pytest.raises(NothingToTrain, match="no sessions yet"):
            training.step(Reader(store), recorder, Intake())
        server.roll_out(recorder, "flat", [1.0, 1.0])
        with pytest.raises(NothingToTrain, match="no group has contrast"):
            training.step(Reader(store), recorder, Intake())
        server.version = "0"
        server.roll_out(recorder, "old", [1.0, 0.0])
        training.version = 7
        with pytest.raises(NothingToTrain, match="too old"):
            training.step(Reader(store), recorder, Intake(max_lag=3))
        training.version = 3
        training.step(Reader(store), recorder, Intake(max_lag=3))
    with pytest.raises(ValueError, match="began from"):
        TrainingRun.open(tmp_path / "out", str(checkpoint), SETTINGS)


def test_probe_prompts_are_real_and_long_enough() -> None:
    import numpy as np

    from trainer.batches import Credited
    from trainer.sequences import Row

    def item(length: int) -> Credited:
        ids = np.arange(length + 1, dtype=np.int32)
        mask = np.arange(length + 1) == length
        return Credited(
            Row(session=1, turns=(1,), ids=ids, mask=mask, logprobs=np.zeros(length + 1, np.float32), spans=()), 1.0
        )

    lengths = [len(p) for p in probe_prompts([item(5), item(200), item(200), item(5000), item(150), item(7)])]
    assert lengths == [150, 200, 2048]
    assert [len(p) for p in probe_prompts([item(5)])] == [5]


@pytest.mark.parametrize("lora", [None, Lora(rank=4), Lora(rank=4, dropout=0.2)])
def test_a_step_is_rebuilt_to_the_bit(tmp_path: Path, store: Store, lora: Lora | None) -> None:
    settings = replace(SETTINGS, lora=lora)
    model = make_checkpoint(tmp_path / "model", layers=1)
    server = ModelServer(model)
    reader = Reader(store)
    with Recorder(store) as recorder:
        training = TrainingRun.open(tmp_path / "out", str(model), settings)
        reports = []
        for step in range(3):
            server.roll_out(recorder, f"g{step}", [1.0, 0.0, 0.0])
            reports.append(training.step(reader, recorder, Intake(choice=Choice(balance_sessions=step == 1))))
            if step == 1:  # moments and adapters come from disk as well as they do from memory
                training = TrainingRun.open(tmp_path / "out", str(model), settings)
        for report in reports:
            rows = rebuild(reader, load_batch(store, report.batch_id))
            assert digest(rows) == digest(report.selection.rows)
        last = load_batch(store, reports[-1].batch_id)
        assert step_again(rebuild(reader, last), last, tmp_path / "out") == []
        first = load_batch(store, reports[0].batch_id)
        assert step_again(rebuild(reader, first), first, tmp_path / "out") == [], "from fresh moments"
        second = load_batch(store, reports[1].batch_id)
        with pytest.raises(FileNotFoundError, match=r"optimizer/1\.pt is gone"):
            step_again(rebuild(reader, second), second, tmp_path / "out")
        against = [replace(item, advantage=-item.advantage) for item in rebuild(reader, last)]
        assert step_again(against, last, tmp_path / "out") != [], "other rows give other weights"
        last.batch.stats = {**last.batch.stats, "processes": 2}
        with pytest.raises(ValueError, match="batch 3 was made by 2 processes"):
            step_again(rebuild(reader, last), last, tmp_path / "out")
        with store.engine.begin() as connection:
            connection.execute(update(Turn).where(Turn.session_id == 1).values(logprobs=[-9.0] * 5))
        with pytest.raises(Changed, match="are not those that were trained"):
            rebuild(Reader(store), first)
        with pytest.raises(LookupError, match="no batch 9; the last is 3"):
            load_batch(store, 9)


def test_killed_between_the_step_and_the_record(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is on disk, the batch is not in the record, nothing was pushed: the next run makes up for it."""
    model = make_checkpoint(tmp_path / "model", layers=1)
    server = ModelServer(model)
    reader = Reader(store)
    with Recorder(store) as recorder:
        server.roll_out(recorder, "g", [1.0, 0.0])
        training = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        with monkeypatch.context() as patch:
            patch.setattr(Recorder, "record_batch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                training.step(reader, recorder, Intake(), server=server.client())
        assert [group.name for group in reader.groups()] == ["g"]
        again = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        assert again.catch_up(server.client()) is not None
        assert server.version == "1"
        assert again.catch_up(server.client()) is None
        with pytest.raises(NothingToTrain):
            again.step(reader, recorder, Intake(), server=server.client())
        assert reader.groups() == [], "not trained on twice"
        assert load_batch(store, 1).batch.checkpoint == str(again.weights)
