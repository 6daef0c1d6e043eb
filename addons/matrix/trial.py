"""One harness, started on the task behind the proxy, watched, and cleaned up after."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from addons.matrix import actor
from addons.matrix.row import Run
from certs import harnesses, isolation, keys
from certs.environment import harness_environment, proxy_url
from certs.harnesses import Harness

_GRACE = 5.0
_POLL = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all trials share. `home` holds the CA and the session secret, `timeout` is seconds for one harness.

    `scripted` says that the model does the task whatever harness asks it, so that a task undone is a fault; `isolated`
    that each harness gets a network of its own.
    """

    directory: Path
    home: Path
    bundle: Path
    proxy_port: int
    timeout: float
    scripted: bool
    isolated: bool


async def trial(bench: Bench, harness: Harness, program: Path, session: str) -> Run:
    """Run `harness` once, in a fresh home and workspace below the bench's directory; its output goes to a log there."""
    directory = (bench.directory / harness.name).absolute()
    home, workspace = directory / "home", directory / "workspace"
    home.mkdir(parents=True)
    workspace.mkdir()
    written = workspace / "written.txt"
    proxy = proxy_url("127.0.0.1", bench.proxy_port, session, keys.session_key(bench.home, session))
    env = harnesses.environment(harness, program=program, home=home, proxy=harness_environment(proxy, bench.bundle))
    command = harness.argv(actor.TASK.format(path=written), program)
    report = directory / "network.json"
    if bench.isolated:
        command = isolation.wrap(command, report=report)
    began = time.monotonic()
    with (directory / "harness.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=workspace, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        status = await asyncio.wait_for(process.wait(), bench.timeout)
    except TimeoutError:
        status = None
    finally:
        seconds = time.monotonic() - began
        await _end_all(process, home)
    done = written.is_file() and written.read_text().strip() == actor.WORD
    return Run(
        status=status,
        seconds=seconds,
        done=done if done or bench.scripted else None,
        bypassed=isolation.read_report(report).direct if report.exists() else None,
    )


async def _end_all(process: asyncio.subprocess.Process, home: Path) -> None:
    """End the harness's processes, those too that it left behind: daemons, a tmux server."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        for pid in harnesses.leftovers(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
        await asyncio.to_thread(_gone, home)
    await process.wait()


def _gone(home: Path) -> None:
    """Wait until nothing is left, or for as long as a process may take to end."""
    limit = time.monotonic() + _GRACE
    while harnesses.leftovers(home) and time.monotonic() < limit:
        time.sleep(_POLL)
