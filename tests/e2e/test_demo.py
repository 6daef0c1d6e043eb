"""`make demo` itself, on two tasks: the loop closes, and leaves nothing running."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from replay.reader import Reader
from replay.store import Store
from tests.e2e.conftest import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.harness, pytest.mark.network]


def test_the_demo_closes_the_loop(mini: Path, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    shipped = sorted((ROOT / "trainer" / "tasksets" / "demo").iterdir())
    for task in shipped[:2]:
        shutil.copytree(task, tasks / task.name)
    (tmp_path / ".harness").symlink_to(ROOT / ".harness")  # installed once
    command = [sys.executable, "-m", "trainer.demo", "--tasks", str(tasks), "--group-size", "4"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    [store_file] = (tmp_path / "runs" / "demo").glob("*/harnesstap.db")
    with Store.open(f"sqlite:///{store_file}") as store:
        reader = Reader(store)
        sessions = reader.sessions()
        assert {session.status for session in sessions} == {"done"}
        assert all(session.reward in (0.0, 1.0) for session in sessions)
        versions = {turn.weight_version for session in sessions for turn in reader.turns(session)}
    # Rewards are sampled: now and then every group's are equal, nothing can be learnt, and the demo says so.
    trained = "No step this time" not in done.stdout
    assert len(sessions) == (16 if trained else 8)
    assert versions == ({"0", "1"} if trained else {"0"})
    assert "replay show" in done.stdout
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
    assert left == "", "the demo left processes behind"
