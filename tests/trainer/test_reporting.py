"""Figures of a run where they are watched: real event files of TensorBoard, over a restart."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from replay.batches import load_batch
from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.conftest import make_checkpoint
from tests.trainer.test_training import SETTINGS, ModelServer
from trainer import reporting
from trainer.cli import app
from trainer.intake import Intake
from trainer.training import TrainingRun

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        yield store


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Everything in the event files of `directory`: (step, value), by name."""
    events = EventAccumulator(str(directory))
    events.Reload()
    return {name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_one_report_over_a_restart_and_the_same_numbers_everywhere(tmp_path: Path, store: Store) -> None:
    model = make_checkpoint(tmp_path / "model", layers=1)
    server = ModelServer(model)
    with Recorder(store) as recorder:
        for group in range(3):
            server.roll_out(recorder, f"g{group}", [1.0, 0.0, 0.0])
        recorder.score("g0.0", 1.5, {"task": 1.0, "+brevity": 0.5}).result()
    out = tmp_path / "out"
    command = [
        "grpo",
        "--model",
        str(model),
        "--store",
        str(store.engine.url),
        "--out",
        str(out),
        "--no-push",
        "--groups",
        "1",
    ]
    for steps in ("2", "1"):
        result = CliRunner().invoke(app, [*command, "--steps", steps, "--report-to", "tensorboard"])
        assert result.exit_code == 0, result.output

    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["version"] for line in lines] == [1, 2, 3]
    reported = scalars(out / "tensorboard")
    for index, line in enumerate(lines):
        stats = load_batch(store, line["batch"]).batch.stats
        assert stats == {name: value for name, value in line.items() if name not in ("at", "version", "batch")}
        numbers = {name: value for name, value in line.items() if isinstance(value, int | float) and name in stats}
        for name, value in numbers.items():
            step, seen = dict(enumerate(reported[f"train/{name}"])).get(index, (0, 0.0))
            if name != "reward_part_brevity":  # the first step's alone
                assert step == line["version"], name
                assert seen == pytest.approx(value, rel=1e-5), name

    first, second, third = lines
    assert {"loss", "gradient_norm", "ratio_mean", "ratio_max", "clip_share", "entropy", "logprob_gap_max"} < set(first)
    assert (first["reward_mean"], first["reward_max"], first["solved"]) == (0.5, 1.5, pytest.approx(1 / 3))
    assert first["reward_part_brevity"] == 0.5
    assert "reward_part_brevity" not in second
    assert first["advantage_max"] == pytest.approx(1.1546, abs=1e-3)
    assert (first["turns_trained"], first["tokens_trained"], first["groups_used"]) == (6, 30, 1)
    assert first["tokens_processed"] == 3 * (3 + 5 + 3 + 5)
    assert first["tokens_per_second"] == pytest.approx(30 / first["seconds"])
    # All were sampled before the first update.
    assert [line["lag_mean"] for line in lines] == [line["lag_max"] for line in lines] == [0, 1, 2]
    assert third["weight_versions"] == {"default": 30}


def test_a_step_whose_line_was_lost_is_reported_by_the_next_run(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_checkpoint(tmp_path / "model", layers=1)
    server = ModelServer(model)
    told: list[int] = []
    with Recorder(store) as recorder:
        for group in range(2):
            server.roll_out(recorder, f"g{group}", [1.0, 0.0])
        training = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        with monkeypatch.context() as patch:
            patch.setattr(TrainingRun, "_log", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                training.step(Reader(store), recorder, Intake(max_groups=1))
        again = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        again.report = lambda step, figures: told.append(step)
        again.step(Reader(store), recorder, Intake(max_groups=1))
    assert told == [1, 2]
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["version"] for line in lines] == [1, 2]


@pytest.mark.parametrize("command", ["grpo", "sft", "dpo"])
def test_a_place_that_is_not_there_is_said_before_anything_is_loaded(
    tmp_path: Path, store: Store, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    monkeypatch.setattr("transformers.integrations.integration_utils.is_trackio_available", lambda: False)
    for where, said in (("trackio", "pip install trackio"), ("paper", "cannot report to 'paper'")):
        arguments = ["--model", str(tmp_path / "none"), "--store", str(store.engine.url), "--report-to", where]
        told = CliRunner().invoke(app, [command, *arguments, *(["--no-push"] if command == "grpo" else [])])
        assert told.exit_code == 1
        assert said in " ".join(told.output.split())


def test_nowhere_is_the_default_and_all_is_what_is_installed() -> None:
    reporting.check("none")
    reporting.check("all")


@pytest.mark.parametrize("command", [["sft", "--rerender", "never"], ["dpo"]], ids=["sft", "dpo"])
def test_sft_and_dpo_report_through_their_one_trainer(
    tmp_path: Path, store: Store, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sessions are recorded without the hash of a chat template; their tokens are this model's.
    monkeypatch.setattr("trainer.students.check_own", lambda *_: None)
    model = make_checkpoint(tmp_path / "model", layers=1)
    server = ModelServer(model)
    with Recorder(store) as recorder:
        server.roll_out(recorder, "g", [1.0, 1.0, 0.0])
    out = tmp_path / "out"
    arguments = ["--model", str(model), "--store", str(store.engine.url), "--out", str(out), "--batch-size", "1"]
    result = CliRunner().invoke(app, [*command, *arguments, "--epochs", "1", "--report-to", "tensorboard"])
    assert result.exit_code == 0, result.output
    (events,) = (out / "logs").rglob("events.out.tfevents.*")
    assert [step for step, _ in scalars(events.parent)["train/loss"]] == [1, 2]
