"""`trainer grpo` killed by SIGKILL at any point of a step, and started again: it ends with the very same weights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select

from replay.batches import load_batch
from replay.schema import Batch
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.conftest import make_checkpoint
from tests.trainer.test_training import ModelServer
from trainer.rebuild import differing

pytestmark = pytest.mark.slow

PLACES = [
    "trainer.loss_engine:LossEngine._compute_loss",  # in the update
    "+trainer.grpo:Learner.step",  # after it, nothing written
    "trainer.export:_replace",  # weights written, not in their place
    "+trainer.training:export",
    "+trainer.grpo:Learner.save_optimizer",
    "trainer.run_state:RunState.write",
    "+trainer.run_state:RunState.write",  # the step is made; the record does not know
    "+replay.writer:Recorder.record_batch",  # handed to the writer's thread: written or not
    "trainer.training:TrainingRun._log",  # in the record for certain
    "trainer.training:prune",
]
OF_ADAPTERS = [
    "+trainer.grpo:Learner.save_optimizer",
    "trainer.run_state:RunState.write",
    "trainer.training:TrainingRun._log",
]


def command(folder: Path, *more: str) -> list[str]:
    options = {"--model": folder.parent / "model", "--store": f"sqlite:///{folder / 'tap.db'}", "--out": folder / "out"}
    given = [str(word) for pair in options.items() for word in pair]
    return ["grpo", *given, "--no-push", "--groups", "1", "--steps", "99", "--lr", "1e-3", "--no-checkpointing", *more]


def run(*arguments: str) -> int:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
    return done.returncode


@pytest.mark.parametrize(
    ("places", "more"), [(PLACES, ()), (OF_ADAPTERS, ("--lora-rank", "4"))], ids=["all weights", "adapters"]
)
def test_killed_anywhere_it_ends_with_the_same_weights(
    tmp_path: Path, places: list[str], more: tuple[str, ...]
) -> None:
    total = 2 * len(places) + 1
    server = ModelServer(make_checkpoint(tmp_path / "model", layers=1))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    with Store.open(f"sqlite:///{whole / 'tap.db'}") as store, Recorder(store) as recorder:
        for group in range(total):
            server.roll_out(recorder, f"g{group}", [1.0, 0.0] if group % 2 else [0.0, 1.0])
    shutil.copytree(whole, broken)
    assert run("trainer.cli", *command(whole, *more)) == 0
    for place in places:
        # At the second call, so that every process takes up the run, and has at least begun a step of its own.
        assert run("tests.trainer.killed", place, "2", *command(broken, *more)) == -signal.SIGKILL, place
    assert run("trainer.cli", *command(broken, *more)) == 0

    digests = {}
    for folder in (whole, broken):
        with Store.open(f"sqlite:///{folder / 'tap.db'}") as store, store.engine.connect() as connection:
            assert connection.scalar(select(func.count(Batch.id))) == total
            queries = [load_batch(store, batch).batch.query for batch in range(1, total + 1)]
        assert [query["groups"] for query in queries] == [[f"g{group}"] for group in range(total)], "each once"
        digests[folder] = [query["digest"] for query in queries]
        lines = [json.loads(line) for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
        assert [line["version"] for line in lines] == [line["batch"] for line in lines] == list(range(1, total + 1))
        assert sorted(path.name for path in (folder / "out" / "weights").iterdir() if path.name.isdecimal()) == [
            str(version) for version in range(total - 2, total + 1)
        ]
    assert digests[whole] == digests[broken]
    for version in range(total - 2, total + 1):
        made = [folder / "out" / "weights" / str(version) for folder in (whole, broken)]
        assert differing(*made) == []
    assert differing(made[0], tmp_path / "model") != []
