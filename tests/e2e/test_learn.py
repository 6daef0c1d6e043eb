"""`make learn`: in the real harness, on real vLLM, the tiny model solves more of the tasks that it was not trained on.

Seed 0, with seeded sampling. The margin is the lower end of the paired 95 % interval: above 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from replay.reader import Reader
from replay.store import Store
from tests.e2e.conftest import ROOT
from trainer.evaluation import Run, compare

pytestmark = [pytest.mark.vllm, pytest.mark.harness, pytest.mark.network]


def test_reward_rises(mini: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainer.cli", "run", "trainer/recipes/tiny.toml", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [*command, "--root", str(ROOT / ".harness")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    with Store.open(f"sqlite:///{tmp_path / 'run' / 'harnesstap.db'}") as store:
        reader = Reader(store)
        before, after = (Run.load(reader, f"eval-tiny-{step}") for step in (0, 8))
    gained = compare(before, after)
    assert gained is not None
    assert gained.low > 0, gained
    steps = [json.loads(line) for line in (tmp_path / "run" / "grpo" / "metrics.jsonl").read_text().splitlines()]
    assert max(step["logprob_gap_max"] for step in steps) < 1e-3, "the closed loop stays on policy"
    assert len(steps) >= 5
