"""The proxy that answers from the record: started as the command `tap up`, since it is another wing's."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from replay import codec

_START_SECONDS = 120.0
Then = Literal["stop", "live"]
Cadence = Literal["fast", "recorded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """What `tap up` is to answer from, and where. Empty texts leave `tap`'s own defaults."""

    session: str
    store: str
    port: int
    until: int = 0
    then: Then = "stop"
    cadence: Cadence = "fast"
    engine: str = ""
    model: str = ""
    home: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[tuple[str, str], ...] = ()
    ignore: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The command line."""
        given = {"--engine": self.engine, "--model": self.model, "--home": self.home}
        words = [*tap(), "up", "--port", str(self.port), "--store", self.store]
        for option, value in given.items():
            words += [option, value] if value else []
        settings = {
            "tap_replay": self.session,
            "tap_replay_until": str(self.until),
            "tap_replay_then": self.then,
            "tap_replay_cadence": self.cadence,
            "tap_replay_sampling": codec.dumps(dict(self.sampling)).decode() if self.sampling else "",
            "tap_replay_ignore": codec.dumps(list(self.ignore)).decode() if self.ignore else "",
            "tap_replay_edits": codec.dumps([list(edit) for edit in self.edits]).decode() if self.edits else "",
        }
        words.append("--")
        for name, value in settings.items():
            words += ["--set", f"{name}={value}"] if value else []
        return words


def tap() -> list[str]:
    """The `tap` command of this installation. Raises ValueError where there is none."""
    beside = Path(sys.executable).with_name("tap")
    found = str(beside) if beside.exists() else shutil.which("tap")
    if found is None:
        raise ValueError("the command `tap` is not installed beside `replay`: it runs the proxy")
    return [found]


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(replaying: Replaying, log: Path) -> Iterator[None]:
    """The proxy while the block lasts; its output goes to `log`. Raises ValueError, with its words, when it ends."""
    with log.open("wb") as out:
        process = subprocess.Popen(replaying.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        _wait(process, replaying.port, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until a provider's name is answered for: the port is open earlier than that."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()
            raise ValueError(f"the proxy did not start: {said[-1] if said else 'it said nothing'} (log: {log})")
        if _answers(port):
            return
        time.sleep(0.1)
    raise ValueError(f"the proxy did not answer within {_START_SECONDS:g} s; its log is {log}")


def _answers(port: int) -> bool:
    request = b"GET http://api.openai.com/ready HTTP/1.1\r\nHost: api.openai.com\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.settimeout(30)
            connection.sendall(request)
            return connection.recv(16).startswith(b"HTTP/1.1")
    except OSError:
        return False
