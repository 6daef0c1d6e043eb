"""`trainer run` on a recipe that learns from a teacher: real vLLM, real proxies, mini-swe-agent, a scripted teacher."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replay.reader import Reader
from replay.store import Store
from tests.e2e.conftest import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.harness, pytest.mark.network, pytest.mark.slow]


def test_a_recipe_of_one_task_end_to_end(mini: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "one.toml"
    task = ROOT / "trainer" / "tasksets" / "tiny-train" / "append-20000"
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / task.name).symlink_to(task)
    recipe.write_text(f"""
model = "{ROOT}/trainer/tiny/checkpoint"
[rollouts]
tasks = "tasks"
harnesses = ["mini-swe-agent"]
timeout = 60.0
max_turns = 8
max_tokens = 128
preload = true
[teacher]
script = "{ROOT}/trainer/tiny/teacher.py"
[sft]
epochs = 3
learning_rate = 1e-4
batch_size = 1
gradient_checkpointing = false
[evaluation]
tasks = "tasks"
""")
    out = tmp_path / "run"
    command = [sys.executable, "-m", "trainer.cli", "run", str(recipe), "--out", str(out), "--root", ".harness"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    with Store.open(f"sqlite:///{out / 'harnesstap.db'}") as store:
        reader = Reader(store)
        teacher = reader.sessions(prefix="teacher-one-")
        assert any(session.reward == 1.0 for session in teacher)
        assert {turn.status for session in teacher for turn in reader.turns(session)} == {"complete"}
        versions = [
            {turn.weight_version for one in reader.sessions(prefix=f"eval-one-{step}.") for turn in reader.turns(one)}
            for step in (0, 1)
        ]
        assert versions == [{"0"}, {"1"}]
    assert "taught 1 examples" in done.stdout
    summary = [sys.executable, "-m", "trainer.cli", "summary", str(out)]
    wide = os.environ | {"COLUMNS": "140"}
    shown = subprocess.run(summary, capture_output=True, text=True, check=False, cwd=ROOT, env=wide)
    assert shown.returncode == 0, shown.stderr
    assert "mini-swe-agent" in shown.stdout
