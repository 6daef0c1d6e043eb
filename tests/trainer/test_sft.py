"""Supervised learning: the loss reaches exactly the marked tokens; adapters merge into a plain checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.recording import record_session, record_turn
from trainer.adapters import Lora
from trainer.cli import app
from trainer.export import export
from trainer.imitation import Example
from trainer.policy import load_policy, token_logprobs
from trainer.sft import SftSettings, teach

pytestmark = pytest.mark.slow


EXAMPLE = Example(
    session=1,
    ids=np.array([10, 11, 12, 13, 14, 15, 16], dtype=np.int32),
    mask=np.array([0, 0, 0, 1, 1, 0, 1], dtype=np.bool_),
)
SETTINGS = SftSettings(
    epochs=1, learning_rate=1e-2, batch_size=1, warmup=0, schedule="constant", gradient_checkpointing=False
)


def test_the_loss_is_that_of_the_marked_tokens(checkpoint: Path) -> None:
    policy = load_policy(checkpoint)
    logprobs = token_logprobs(policy.model, EXAMPLE.ids.tolist(), 1)
    expected = -np.mean([logprobs[at - 1] for at in (3, 4, 6)])
    report = teach(policy, [EXAMPLE], SETTINGS)
    assert report.first_loss == pytest.approx(expected, abs=1e-4)
    assert (report.examples, report.tokens, report.steps) == (1, 3, 1)


def test_marked_tokens_become_likelier_and_the_model_is_left_as_it_was_built(checkpoint: Path) -> None:
    policy = load_policy(checkpoint)
    before = token_logprobs(policy.model, EXAMPLE.ids.tolist(), 1)
    report = teach(policy, [EXAMPLE] * 20, SETTINGS)
    after = token_logprobs(policy.model, EXAMPLE.ids.tolist(), 1)
    assert report.last_loss < 0.5 * report.first_loss
    assert all(after[at - 1] > before[at - 1] + 1 for at in (3, 4, 6))
    assert "forward" not in policy.model.__dict__


def test_adapters_are_merged_into_what_is_exported(checkpoint: Path, tmp_path: Path) -> None:
    policy = load_policy(checkpoint)
    original = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    teach(policy, [EXAMPLE] * 10, SftSettings(**{**settings(), "lora": Lora(rank=4)}))
    ids = EXAMPLE.ids.tolist()
    adapted = token_logprobs(policy.model, ids, 1)
    plain = load_policy(export(policy, tmp_path / "out", version="1"))
    assert token_logprobs(plain.model, ids, 1) == pytest.approx(adapted, abs=1e-4)
    assert set(plain.model.state_dict()) == set(original)
    kept = [name for name, tensor in plain.model.state_dict().items() if torch.equal(tensor, original[name])]
    assert "lm_head.weight" in kept
    assert "model.layers.0.self_attn.q_proj.weight" not in kept
    # Exporting leaves the policy as it was, to the bit.
    assert token_logprobs(policy.model, ids, 1) == adapted
    base = {name: tensor for name, tensor in policy.base.state_dict().items() if ".base_layer." in name}
    assert base
    assert all(torch.equal(tensor, original[name.replace(".base_layer.", ".")]) for name, tensor in base.items())


def settings() -> dict[str, Any]:
    return {name: getattr(SETTINGS, name) for name in SETTINGS.__dataclass_fields__}


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'tap.db'}"
    Store.open(url).close()
    return url


def test_the_command(store: str, checkpoint: Path, tmp_path: Path) -> None:
    words = ["sft", "--model", str(checkpoint), "--store", store, "--out", str(tmp_path / "sft"), "--rerender", "never"]
    words += ["--epochs", "8", "--lr", "0.01", "--batch-size", "1", "--no-checkpointing"]
    runner = CliRunner()
    nothing = runner.invoke(app, words)
    assert nothing.exit_code == 1
    assert "nothing to imitate: 0 sessions" in " ".join(nothing.output.split())
    with Store.open(store) as opened, Recorder(opened) as recorder:
        good = record_session(recorder, "good", group="g", reward=1.0)
        record_turn(recorder, good, [10, 11], [12, 13, 2])
        bad = record_session(recorder, "bad", group="g", reward=0.0)
        record_turn(recorder, bad, [10, 11], [20, 2])
    done = runner.invoke(app, words)
    assert done.exit_code == 0, done.output
    taught = load_policy(tmp_path / "sft" / "weights")
    fresh = load_policy(checkpoint)
    assert sum(token_logprobs(taught.model, [10, 11, 12, 13, 2], 2)) > sum(
        token_logprobs(fresh.model, [10, 11, 12, 13, 2], 2)
    )
    assert json.loads((tmp_path / "sft" / "weights" / "harnesstap.json").read_text())["weight_version"] == "sft"
    with Store.open(store) as opened:
        assert [group.name for group in Reader(opened).groups()] == ["g"], "imitation uses no group up"
