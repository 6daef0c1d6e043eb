from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from replay.statistics import quantiles
from replay.writer import Recorder


@pytest.fixture
def many(make: Any, recorder: Recorder) -> None:
    for number in range(3):
        session = make.session(f"codex-{number}", harness="codex", harness_version="1", task="t")
        make.turn(
            session, make.end([1, 2, 3], logprobs=[0.0] * 3, first_token_at=101.0, done_at=103.0), received_at=100.0
        )
        recorder.score(f"codex-{number}", number / 2, status="done").result()
    session = make.session("pi-0", harness="pi")
    first = make.turn(session, received_at=0.0)
    make.turn(session, drift_reason="harness_rewrote", retry_of=first, received_at=0.0)
    make.turn(session, make.end((), status="failed", finish=None, reply=None), parent_id=first, prompt_suffix=[4],
              prompt_length=6, received_at=0.0)  # fmt: skip


@pytest.mark.usefixtures("many")
def test_figures_by_harness_and_version(replay: Any) -> None:
    codex, pi = json.loads(replay("stats", "--json").output)
    assert (codex["harness"], codex["version"], codex["sessions"], codex["judged"]) == ("codex", "1", 3, 3)
    assert (codex["reward_mean"], codex["sampled_tokens"], codex["turns"], codex["sequences"]) == (0.5, 9, 3, 3)
    assert codex["first_token_seconds"] == {"p50": 1.0, "p95": 1.0}
    assert codex["tokens_per_second"] == {"p50": 1.0, "p95": 1.0}
    assert (pi["forks"], pi["retries"], pi["failed_turns"], pi["reward_mean"]) == (1, 1, 1, None)
    lines = replay("stats").output.splitlines()
    assert lines[1].split()[:6] == ["codex", "1", "3", "0", "0.500", "3"]
    assert lines[2].split()[:6] == ["pi", "-", "1", "0", "-", "0"]
    assert [one["harness"] for one in json.loads(replay("stats", "--task", "t", "--json").output)] == ["codex"]
    assert "no session matches" in replay("stats", "--group", "none", code=1).stderr


def test_quantiles() -> None:
    assert quantiles([]) is None
    assert quantiles([2.0]) == {"p50": 2.0, "p95": 2.0}
    assert quantiles([float(number) for number in range(101)]) == {"p50": 50.0, "p95": 95.0}


@pytest.mark.usefixtures("many")
def test_plots(replay: Any, tmp_path: Path) -> None:
    folder = tmp_path / "plots"
    if importlib.util.find_spec("matplotlib") is None:
        assert "install harnesstap[plots]" in replay("stats", "--plots", str(folder), code=1).stderr
        return
    replay("stats", "--plots", str(folder))
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == ["first_token.png", "forks.png", "rewards.png", "tokens.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000 for path in files)
