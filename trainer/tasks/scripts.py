"""Running a task's own scripts: a minimal environment, a time limit, and nothing that outlives them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.tasks.sandbox import Sandbox
from trainer.tasks.task import TaskError

LOG_LIMIT = 64 * 1024
"""Bytes kept of what a script printed, from the end."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Ended:
    """How a script ended: exit status (negative: a signal; None: out of time) and what it printed."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def log(self) -> str:
        """The end of all that it printed."""
        return (self.stdout + self.stderr)[-LOG_LIMIT:]


def run_script(
    script: Path,
    workspace: Path,
    timeout: float,
    *,
    sandbox: Sandbox | None = None,
    inside: str | None = None,
    script_inside: str | None = None,
    binds: Mapping[Path, str] | None = None,
    shown: Mapping[Path, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Ended:
    """Run `script` with bash in `workspace`, in its own process group, which is ended with it.

    `inside` and `script_inside` are what the two are called in `sandbox`; see `Sandbox.wrap` for the rest.
    """
    bash = shutil.which("bash", path=_PATH) or shutil.which("bash")
    if bash is None:
        raise TaskError(f"{script}: needs bash, which is not on this machine")
    with tempfile.TemporaryDirectory(prefix="task-home-") as home:
        environment = {
            "PATH": _PATH, "HOME": home, "TMPDIR": home, "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "TZ": "UTC",
            "TASK_DIR": str(script.parent), **(variables or {}),
        }  # fmt: skip
        argv = [bash, "--noprofile", "--norc", script_inside or str(script)]
        if sandbox is not None:
            argv = sandbox.wrap(
                argv,
                workspace=workspace.resolve(),
                home=Path(home),
                inside=inside,
                binds=binds,
                shown={script.parent: str(script.parent), **(shown or {})} if script_inside is None else shown,
            )
        # Files, not pipes: a child left in the background would keep a pipe open and us waiting.
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                argv, cwd=workspace.resolve(), env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                start_new_session=True,
            )  # fmt: skip
            try:
                status: int | None = process.wait(timeout)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end_group(process)
            return Ended(status, _tail(stdout.fileno()), _tail(stderr.fileno()))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    # All may be gone already; macOS answers "not permitted" for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, LOG_LIMIT, max(0, size - LOG_LIMIT)).decode("utf-8", errors="replace")
