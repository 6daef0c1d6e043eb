"""Preferences: which sessions are paired, and that the better one becomes likelier than the worse one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.recording import record_session, record_turn
from trainer.adapters import Lora
from trainer.cli import app
from trainer.dpo import Collator, DpoSettings, prefer
from trainer.imitation import Example
from trainer.policy import load_policy, token_logprobs
from trainer.preferences import Pair, Pairing, pairs_of

pytestmark = pytest.mark.slow


def example(session: int, ids: list[int], mask: list[int]) -> Example:
    return Example(session=session, ids=np.array(ids, dtype=np.int32), mask=np.array(mask, dtype=np.bool_))


PAIR = Pair(
    example(1, [10, 11, 12, 13, 14, 15, 16], [0, 0, 0, 1, 1, 0, 1]), example(2, [10, 11, 12, 20], [0, 0, 0, 1]), 1.0
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        yield store


def group(store: Store, name: str, rewards: list[float | None]) -> None:
    with Recorder(store) as recorder:
        for index, reward in enumerate(rewards):
            session = record_session(recorder, f"{name}.{index}", group=name, reward=reward)
            record_turn(recorder, session, [10, 11], [12 + index, 2])


def test_pairs_are_within_a_group_and_use_sessions_evenly(store: Store) -> None:
    group(store, "a", [1.0, 0.0, 0.0, None, 1.0])
    group(store, "flat", [1.0, 1.0])
    reader = Reader(store)
    found = pairs_of(reader, reader.groups(), Pairing(per_group=2))
    names = {session.id: session.name for session in reader.sessions()}
    assert [(names[p.chosen.session], names[p.rejected.session]) for p in found.pairs] == [
        ("a.0", "a.1"),
        ("a.4", "a.2"),
    ]
    assert found.groups == 1
    assert found.left_out == {}
    assert len(pairs_of(reader, reader.groups(), Pairing()).pairs) == 4
    assert pairs_of(reader, reader.groups(), Pairing(margin=1.5)).pairs == []


def test_a_session_that_forked_is_its_longest_sequence(store: Store) -> None:
    with Recorder(store) as recorder:
        good = record_session(recorder, "good", group="g", reward=1.0)
        record_turn(recorder, good, [1], [2])
        record_turn(recorder, good, [3], [4, 5, 6])
        bad = record_session(recorder, "bad", group="g", reward=0.0)
        record_turn(recorder, bad, [1], [9])
    reader = Reader(store)
    found = pairs_of(reader, reader.groups(), Pairing())
    [pair] = found.pairs
    assert pair.chosen.ids.tolist() == [3, 4, 5, 6]
    assert found.left_out == {"a shorter sequence of a session that forked": 1}


def test_the_collator_masks_what_was_not_sampled() -> None:
    batch = Collator([PAIR], pad_id=0)([{"index": 0}])
    assert batch["input_ids"].tolist() == [[10, 11, 12, 13, 14, 15, 16], [10, 11, 12, 20, 0, 0, 0]]
    assert batch["completion_mask"].tolist() == [[0, 0, 0, 1, 1, 0, 1], [0, 0, 0, 1, 0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 7, [1, 1, 1, 1, 0, 0, 0]]


@pytest.mark.parametrize("lora", [None, Lora(rank=4)])
def test_the_better_session_becomes_likelier(checkpoint: Path, lora: Lora | None) -> None:
    policy = load_policy(checkpoint)
    rate = 1e-3 if lora is None else 1e-2
    settings = DpoSettings(learning_rate=rate, batch_size=1, gradient_checkpointing=False, lora=lora)

    def gap() -> float:
        better = token_logprobs(policy.model, PAIR.chosen.ids.tolist(), 1)
        worse = token_logprobs(policy.model, PAIR.rejected.ids.tolist(), 1)
        return sum(better[at - 1] for at in (3, 4, 6)) - worse[2]

    before = gap()
    report = prefer(policy, [PAIR] * 10, settings)
    assert report.first_loss == pytest.approx(np.log(2), abs=1e-4), "the policy begins as its reference"
    assert gap() > before + 1
    assert report.accuracy == 1.0
    assert "forward" not in policy.base.__dict__


def test_the_command(store: Store, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'tap.db'}"
    words = ["dpo", "--model", str(checkpoint), "--store", url, "--out", str(tmp_path / "dpo")]
    runner = CliRunner()
    assert "no pairs: in none of 0 complete groups" in " ".join(runner.invoke(app, words).output.split())
    group(store, "a", [1.0, 0.0])
    foreign = runner.invoke(app, words)
    assert foreign.exit_code == 1
    assert "another tokenizer or chat template" in " ".join(foreign.output.split())
    monkeypatch.setattr("trainer.students.fingerprint", lambda policy: "0" * 64)  # what the turns above have
    done = runner.invoke(app, [*words, "--lr", "0.001", "--no-checkpointing"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "dpo" / "weights" / "model.safetensors").is_file()
    assert [g.name for g in Reader(store).groups()] == ["a"], "no group is used up"
