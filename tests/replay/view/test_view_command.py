from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/record.db"


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    """Starts `replay view` on the store."""
    running: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from replay.cli import app; app()", "view", "--store", url, *arguments]
        running.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_interruptible
            )
        )
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def _interruptible() -> None:
    """A shell's background job, as these tests may be, hands an ignored SIGINT on to its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_it_serves_until_interrupted_and_tells_its_address(start: Start, make: Any) -> None:
    session = make.session("s")
    process = start("s", "--port", "0")
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    assert f"/sessions/{session}?token=" in address
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(address, timeout=30) as page:
        assert b"<h1>s " in page.read()
        assert "token" not in page.url
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address.split("?")[0], timeout=30)
    process.send_signal(signal.SIGINT)
    out, log = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in log
    assert address.split("token=")[1] not in log


def test_it_listens_on_loopback_only(start: Start, make: Any) -> None:
    make.session("s")
    process = start("--port", "0")
    assert process.stdout is not None
    port = int(process.stdout.readline().split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=10):
        pass
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port), timeout=10)


def test_what_is_wrong_is_told_in_a_line(start: Start, make: Any) -> None:
    make.session("fix-tests")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, says in (
            (["fixtests", "--port", "0"], "no session 'fixtests'; near: fix-tests"),
            (["--tokenizer", "/none"], "no tokenizer at /none"),
            (["--port", port], "address already in use"),
        ):
            out, log = start(*arguments).communicate(timeout=60)
            assert (out, log.count("\n")) == ("", 1), log
            assert says in log
