"""`trainer eval` serves checkpoints itself, one after the other: the tiny model twice, in the real mini-swe-agent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from replay.reader import Reader
from replay.store import Store
from tests.conftest import TINY
from tests.e2e.conftest import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.harness, pytest.mark.network]


def test_two_models_side_by_side(mini: Path, tmp_path: Path) -> None:
    tasks = ("copy-30000", "delete-30000")
    command = [sys.executable, "-m", "trainer.cli", "eval", "trainer/tasksets/tiny-held-out", "--run", "both"]
    command += ["--model", str(TINY), "--model", str(TINY), "--harness", "mini-swe-agent", "--preload"]
    command += ["--samples", "3", "--max-turns", "8", "--max-tokens", "128", "--concurrency", "3", "--timeout", "120"]
    command += [word for task in tasks for word in ("--task", task)]
    command += ["--store", f"sqlite:///{tmp_path / 'tap.db'}", "--directory", str(tmp_path / "runs")]
    command += ["--save", str(tmp_path / "figures.json"), "--root", str(ROOT / ".harness")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures["runs"]) == ["eval-both-checkpoint-1", "eval-both-checkpoint-2"]
    for scores in figures["runs"].values():
        assert [(one["harness"], one["tasks"], one["sessions"]) for one in scores] == [("mini-swe-agent", 2, 6)]
    assert [(one["before"], one["after"]) for one in figures["differences"]] == [tuple(figures["runs"])]
    assert done.stderr.count("vLLM is ready at") == 2
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        reader = Reader(store)
        sessions = reader.sessions(prefix="eval-both")
        assert len(sessions) == 12
        assert all(reader.turns(session) for session in sessions)
        assert all(session.group is None for session in sessions), "nothing for a trainer to take"
