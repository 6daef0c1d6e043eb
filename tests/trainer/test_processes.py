"""Child processes end with the block that began them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer import processes

WAITS = """
import signal, sys, time
from contextlib import ExitStack
from pathlib import Path
from trainer import processes

signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[2] == "ignored" else signal.default_int_handler)

with processes.ended_by_sigterm(), ExitStack() as stack:
    child = processes.start(["sleep", "100"], log=Path(sys.argv[1]))
    stack.callback(processes.stop, child)
    print(child.pid, flush=True)
    time.sleep(100)
"""


@pytest.mark.parametrize("sigint", ["heard", "ignored"])
def test_sigterm_ends_children_as_an_interrupt_does(tmp_path: Path, sigint: str) -> None:
    argv = [sys.executable, "-c", WAITS, str(tmp_path / "log"), sigint]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(20) == -signal.SIGINT
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            break
        time.sleep(0.1)
    assert not Path(f"/proc/{child}").exists()


def test_the_handler_before_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with processes.ended_by_sigterm():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
