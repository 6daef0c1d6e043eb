"""Not a byte leaves the machine while a harness runs: watched on the wire, in a network of its own.

Everything runs in a fresh network namespace that has a default route, into a device that swallows. Packets for
anywhere but loopback are therefore really sent, and a raw socket sees them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proxy import ROOT

pytestmark = [pytest.mark.harness, pytest.mark.network]


def test_a_harness_run_stays_on_loopback(mini: Path, tmp_path: Path) -> None:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs Linux, root and iproute2 to make a network namespace")
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.loopback_scene", str(mini), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "harness exit 0, 2 turns, 0 packets beyond loopback []" in done.stdout
    assert "control seen" in done.stdout, "the watch must see what does leave"
