"""`trainer eval`: of what a proxy leads to, and of checkpoints that it serves itself, each beside the first."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from certs import harnesses as table
from replay.records import NewSession
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.recipe_parts import lay_out
from tests.trainer.recording import record_turn
from trainer import local
from trainer.cli import app
from trainer.commands import planning
from trainer.commands.evaluate import run_names
from trainer.plan import Attempt, Outcome, Plan
from trainer.tasks import load_tasks


def test_runs_are_named_after_their_models() -> None:
    assert run_names("eval-x", ["runs/a/weights/8"]) == {"eval-x": "runs/a/weights/8"}
    assert list(run_names("eval-x", ["org/Tiny-1.5B", "runs/a/8", "runs/b/8"])) == [
        "eval-x-Tiny-1-5B", "eval-x-8-2", "eval-x-8-3",
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two checkpoints, of which the second solves everything, and two harnesses, one of them installed."""
    (tmp_path / "tasks").mkdir()
    lay_out(tmp_path)
    for name in ("bad", "good"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    served: list[str] = []

    def start(self: local.LocalStack) -> None:
        served.append(Path(self.model).name)
        self.engine = "http://127.0.0.1:9"
        self.stack.callback(served.append, "-")

    async def rollout(plan: Plan, store: Store, **_: Any) -> list[Outcome]:
        outcomes = []
        with Recorder(store) as recorder:
            for task, runner in plan.cells():
                name, harness = f"{plan.run}.{task.name}.{runner.harness.name}.0", runner.harness.name
                session = recorder.open_session(NewSession(name=name, task=task.name, harness=harness)).result()
                record_turn(recorder, session, [1], [2])
                reward = float(served[-1] == "good")
                recorder.score(name, reward, status="done").result()
                attempt = Attempt(name=name, group=None, task=task, runner=runner, index=0)
                outcomes.append(Outcome(attempt=attempt, stage="done", reward=reward, exit=0, seconds=1.0))
        return outcomes

    monkeypatch.setattr(local.LocalStack, "start", start)
    monkeypatch.setattr(local.LocalStack, "through", lambda _, plan: replace(plan, proxy_port=1))
    monkeypatch.setattr(planning, "rollout", rollout)
    spec = table.get("mini-swe-agent")

    def find(harness: table.Harness, _: Path) -> Path:
        if harness.name == spec.name:
            return Path(sys.executable)
        raise table.HarnessError("not installed")

    monkeypatch.setattr(table, "find", find)
    tmp_path.joinpath("served").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning, "find_sandbox", lambda _: None)
    return tmp_path


def evaluate(folder: Path, *words: str) -> str:
    arguments = ["eval", str(folder / "tasks"), "--store", f"sqlite:///{folder}/tap.db", *words]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.output


def test_models_are_served_in_turn_and_compared_with_the_first(folder: Path) -> None:
    models = ("--model", str(folder / "bad"), "--model", str(folder / "good"))
    output = evaluate(folder, "--run", "x", *models, "--harness", "all", "--save", str(folder / "x.json"))
    assert "not installed, and left out: claude-code" in output
    assert "x-good against x-bad" in output
    assert "+100.0 (" in output
    found = json.loads((folder / "x.json").read_text())
    assert {name: scores[0]["solved"] for name, scores in found["runs"].items()} == {
        "eval-x-bad": 0.0,
        "eval-x-good": 1.0,
    }
    [difference] = found["differences"]
    assert (difference["before"], difference["after"]) == ("eval-x-bad", "eval-x-good")
    assert difference["by_harness"]["mini-swe-agent"][0] == 1.0
    tasks = len(load_tasks(folder / "tasks"))
    assert [score["tasks"] for scores in found["runs"].values() for score in scores] == [tasks, tasks]
    # One alone keeps the run's name, and compares with what is asked for.
    output = evaluate(folder, "--run", "y", "--model", str(folder / "bad"), "--compare", "x-good")
    assert "y against x-good" in output


def test_what_is_wrong_is_said_before_anything_is_served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.LocalStack, "start", lambda _: pytest.fail("served"))
    arguments = ["eval", str(folder / "tasks"), "--store", f"sqlite:///{folder}/tap.db"]
    for words, complaint in (
        (["--model", str(folder / "good"), "--model", str(folder / "nowhere")], "no checkpoint in"),
        (["--model", str(folder / "good"), "--harness", "nobody"], "nobody"),
    ):
        done = CliRunner().invoke(app, [*arguments, *words], env={"COLUMNS": "160"})
        assert done.exit_code == 1
        assert complaint in done.output
