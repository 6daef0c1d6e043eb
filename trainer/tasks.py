"""Task sets: plain folders that anyone can read, write and run by hand.

    tasks/
        rename-report/
            prompt.md     what the harness is asked, word for word
            files/        optional; copied into the empty workspace
            setup.sh      optional; then run there; any failure is an error
            verify.sh     run there when the harness has ended; decides the reward

verify.sh says: exit 0 = reward 1, exit 1 = reward 0. On exit 0 the last line it prints may be
`reward=<number>` and is the reward instead; lines `part.<name>=<number>` are kept beside it (not `task`, which is
the reward's own name among its parts). Any other exit
status, a signal, a timeout or a reward that is not a finite number means that nobody knows: the reward is
None, never 0, and the session is not trained on.

Both scripts run in bash with the workspace as current folder and TASK_DIR naming the task's folder, in a
minimal environment: nothing of the caller's variables, a temporary HOME, a PATH of system folders. What the
harness left in the workspace is not to be trusted, so a script should quote every expansion, test for links,
and print contents only to stderr.
"""

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from replay.rewards.rollouts import TASK

PROMPT, FILES, SETUP, VERIFY = "prompt.md", "files", "setup.sh", "verify.sh"
LOG_LIMIT = 64 * 1024
"""Bytes kept of what a script printed, from the end."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A task's name becomes part of session names, which travel as the user name of a proxy URL.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REWARD = re.compile(r"reward=(\S+)")
_PART = re.compile(r"part\.([A-Za-z0-9_.-]+)=(\S+)")


class TaskError(ValueError):
    """A task set, a task or a workspace is not as it has to be; the message names the path."""


@dataclass(frozen=True)
class Task:
    """One task: its name (unique in its set), the text the harness is given, and its folder (absolute)."""

    name: str
    prompt: str
    path: Path


@dataclass(frozen=True)
class Score:
    """What verify.sh said. `reward` is None if it could not tell; `log` is the end of all that it printed."""

    reward: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    log: str = ""


@dataclass(frozen=True)
class _Ended:
    """How a script ended: exit status (negative: a signal; None: out of time) and what it printed."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def log(self) -> str:
        return (self.stdout + self.stderr)[-LOG_LIMIT:]


def load_tasks(path: str | Path) -> list[Task]:
    """All tasks of the set at `path`, sorted by name; TaskError if there is none or one is incomplete."""
    root = Path(path).resolve()
    if not root.is_dir():
        raise TaskError(f"{root}: not a folder of tasks")
    if (root / PROMPT).exists():
        raise TaskError(f"{root}: is a task itself; name the folder that holds it")
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and entry.name[0] not in "._")
    if not folders:
        raise TaskError(f"{root}: holds no task folders")
    return [load_task(folder) for folder in folders]


def load_task(folder: Path) -> Task:
    """The task in `folder`; TaskError if it is incomplete."""
    folder = folder.resolve()
    if not _NAME.fullmatch(folder.name):
        raise TaskError(f"{folder}: a task's name is letters, digits, '.', '_', '-', not one of those signs first")
    for name in (PROMPT, VERIFY):
        if not (folder / name).is_file():
            raise TaskError(f"{folder / name}: missing")
    if (folder / FILES).exists() and not (folder / FILES).is_dir():
        raise TaskError(f"{folder / FILES}: not a folder")
    try:
        prompt = (folder / PROMPT).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise TaskError(f"{folder / PROMPT}: not UTF-8 ({error})") from error
    if not prompt:
        raise TaskError(f"{folder / PROMPT}: empty")
    return Task(folder.name, prompt, folder)


def prepare(task: Task, workspace: Path, timeout: float = 120.0) -> None:
    """Fill `workspace` (made if absent, else it must be empty); `timeout` is that of setup.sh, in seconds."""
    workspace.mkdir(parents=True, exist_ok=True)
    if any(workspace.iterdir()):
        raise TaskError(f"{workspace}: not empty")
    if (task.path / FILES).is_dir():
        shutil.copytree(task.path / FILES, workspace, symlinks=True, dirs_exist_ok=True)
    if (task.path / SETUP).is_file():
        ended = _run_script(task.path / SETUP, workspace, timeout)
        if ended.status != 0:
            late = f"did not end within {timeout:g} s"
            how = late if ended.status is None else f"exit status {ended.status}"
            raise TaskError(f"{task.path / SETUP}: {how}\n{ended.log}")


def verify(task: Task, workspace: Path, timeout: float = 60.0) -> Score:
    """Score what is in `workspace`; `timeout` in seconds. What goes wrong is a reward of None, with a log."""
    if not workspace.is_dir():
        return Score(None, log=f"{workspace}: the workspace is gone")
    ended = _run_script(task.path / VERIFY, workspace, timeout)
    if ended.status is None:
        return Score(None, log=f"{ended.log}\n[{VERIFY} did not end within {timeout:g} s]")
    if ended.status == 1:
        return Score(0.0, _parts(ended.stdout), ended.log)
    if ended.status != 0:
        return Score(None, log=f"{ended.log}\n[{VERIFY} ended with status {ended.status}]")
    # Only on success: a failing comparison may well have printed a line that the harness wrote.
    last = ended.stdout.rstrip().rpartition("\n")[2]
    if said := _REWARD.fullmatch(last.strip()):
        reward = _number(said[1])
        if reward is None:
            return Score(None, log=f"{ended.log}\n[not a finite reward: {said[1]}]")
        return Score(reward, _parts(ended.stdout), ended.log)
    return Score(1.0, _parts(ended.stdout), ended.log)


def _parts(stdout: str) -> dict[str, float]:
    matches = (_PART.fullmatch(line.strip()) for line in stdout.splitlines())
    numbers = ((match[1], _number(match[2])) for match in matches if match and match[1] != TASK)
    return {name: number for name, number in numbers if number is not None}


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _run_script(script: Path, workspace: Path, timeout: float) -> _Ended:
    """Run `script` in its own process group, which is ended with it: nothing it started outlives it."""
    bash = shutil.which("bash", path=_PATH) or shutil.which("bash")
    if bash is None:
        raise TaskError(f"{script}: needs bash, which is not on this machine")
    with tempfile.TemporaryDirectory(prefix="task-home-") as home:
        environment = {
            "PATH": _PATH, "HOME": home, "TMPDIR": home, "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "TZ": "UTC",
            "TASK_DIR": str(script.parent),
        }  # fmt: skip
        # Files, not pipes: a child left in the background would keep a pipe open and us waiting.
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                [bash, "--noprofile", "--norc", str(script)], cwd=workspace.resolve(), env=environment,
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
            )  # fmt: skip
            try:
                status: int | None = process.wait(timeout)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end_group(process)
            return _Ended(status, _tail(stdout.fileno()), _tail(stderr.fileno()))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    # All may be gone already; macOS answers "not permitted" for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, LOG_LIMIT, max(0, size - LOG_LIMIT)).decode("utf-8", errors="replace")
