"""Child processes that cannot be left behind: each gets its own process group and a log file."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

TERMINATE_SECONDS = 10.0


class ProcessFailed(RuntimeError):
    """A process ended, or stayed silent, when it should have served. The message carries the tail of its log."""


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `argv` as the leader of its own process group; stdout and stderr go to `log`, stdin is empty."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=cwd, start_new_session=True
        )


def stop(process: subprocess.Popen[bytes], *, grace: float = TERMINATE_SECONDS) -> int:
    """End the whole group of `process`, first politely; return the leader's exit status.

    The group is signalled even when its leader is gone: a driver that was killed leaves its children running.
    """
    signal_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    signal_group(process.pid, signal.SIGKILL)
    return process.wait()


def signal_group(leader: int, signum: int) -> None:
    """Send `signum` to the process group that `leader` began, if any of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signum)


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM, a supervisor's way to say it, does what Ctrl-C does: the block is left, and with it its children end."""

    def interrupt(*_: object) -> None:
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)  # asyncio has a handler of its own while it runs
        else:
            raise KeyboardInterrupt  # SIGINT is ignored: a script started this in the background

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tail(log: Path, lines: int = 30) -> str:
    """The last `lines` lines of `log`, or a note that there is none; undecodable bytes are replaced."""
    if not log.exists():
        return f"(no log at {log})"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 64_000))
        text = file.read().decode(errors="replace").splitlines()
    return "\n".join(text[-lines:]) or f"({log} is empty)"


def wait_for(
    ready: str, check: Callable[[], bool], process: subprocess.Popen[bytes] | None, log: Path | None, timeout: float
) -> float:
    """Poll `check` until it is true; return the seconds it took.

    Raises ProcessFailed, naming `ready` and ending in the log's tail, when `process` ends first or `timeout` passes.
    """
    began = time.monotonic()
    while not check():
        waited = time.monotonic() - began
        status = None if process is None else process.poll()
        shown = "" if log is None else f"\n--- last lines of {log}\n{tail(log)}"
        if status is not None:
            raise ProcessFailed(f"{ready} ended with status {status} after {waited:.0f} s{shown}")
        if waited > timeout:
            raise ProcessFailed(f"{ready} was not ready after {timeout:.0f} s{shown}")
        time.sleep(0.2)
    return time.monotonic() - began
