"""What the tiny model is trained on is what a harness really sends: watched through the real proxy."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from trainer.tiny.harness import Output
from trainer.tiny.watched import Watched

pytestmark = [pytest.mark.harness, pytest.mark.network]


def test_pi_is_watched(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "trainer.tiny.watch", "--out", str(tmp_path), "--root", str(ROOT / ".harness"), "pi"],
        cwd=ROOT, check=True, timeout=300,
    )  # fmt: skip
    pi = Watched.load(tmp_path / "pi.json")
    assert (pi.name, pi.shell) == ("pi", "bash")
    assert pi.draw_opening("Copy a.txt to b.txt", random.Random(0))[-1]["content"] == "Copy a.txt to b.txt"
    assert pi.result("cat a.txt", Output("pear\n", "", 0))["content"] == "pear\n"
    assert "code 3" in pi.result("exit 3", Output("", "", 3))["content"]
    assert "workspace" not in str(pi.opening), "where it was watched is no part of it"
