"""An option that is none ends mitmdump: without our addon it would be a proxy that passes everything on."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.processes import free_port

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("tap_max_tokens=many", "not an integer: many"),
        ("tap_sampling=none", "tap_sampling 'none': choose one of asked, full"),
        ("tap_engine=gpu-7", "write http://HOST:PORT"),
        ("tap_egres=tunnel", "no option tap_egres"),
    ],
)
def test_mitmdump_ends_and_says_why(tmp_path: Path, setting: str, told: str) -> None:
    port = free_port()
    start = "from mitmproxy.tools.main import mitmdump; mitmdump()"
    arguments = ["-s", str(ROOT / "addons" / "intercept.py"), "--listen-port", str(port), "--set", setting]
    arguments += ["--set", f"tap_home={tmp_path / 'home'}", "--set", f"tap_store=sqlite:///{tmp_path / 'tap.db'}"]
    done = subprocess.run(
        [sys.executable, "-c", start, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert told in done.stderr
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
