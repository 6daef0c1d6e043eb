"""The plain task folder: anyone can read, write and run it by hand.

    tasks/
        rename-report/
            prompt.md     what the harness is asked, word for word
            files/        optional; copied into the empty workspace
            setup.sh      optional; then run there; any failure is an error
            verify.sh     run there when the harness has ended; decides the reward
            solve.sh      optional; does the task, for `trainer check`

verify.sh says: exit 0 = reward 1, exit 1 = reward 0. On exit 0 the last line it prints may be
`reward=<number>` and is the reward instead; lines `part.<name>=<number>` are kept beside it (not `task`, which is
the reward's own name among its parts). Any other exit
status, a signal, a timeout or a reward that is not a finite number means that nobody knows: the reward is
None, never 0, and the session is not trained on.

The scripts run in bash with the workspace as current folder and TASK_DIR naming the task's folder, in a
minimal environment: nothing of the caller's variables, a temporary HOME, a PATH of system folders. What the
harness left in the workspace is not to be trusted, so a script should quote every expansion, test for links,
and print contents only to stderr.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from replay.rewards.rollouts import TASK
from trainer.tasks.sandbox import Sandbox
from trainer.tasks.scripts import run_script
from trainer.tasks.task import (
    SETUP_SECONDS,
    VERIFY_SECONDS,
    Score,
    Task,
    TaskError,
    check_name,
    empty,
    number,
    read_prompt,
)

PROMPT, FILES, SETUP, VERIFY, SOLVE = "prompt.md", "files", "setup.sh", "verify.sh", "solve.sh"
_REWARD = re.compile(r"reward=(\S+)")
_PART = re.compile(r"part\.([A-Za-z0-9_.-]+)=(\S+)")


@dataclass(frozen=True)
class FolderTask(Task):
    """A task as the module describes it. Times are seconds."""

    setup_seconds: float = SETUP_SECONDS
    verify_seconds: float = VERIFY_SECONDS

    @classmethod
    def load(cls, folder: Path) -> FolderTask:
        """The task in `folder`; TaskError if it is incomplete."""
        name = check_name(folder)
        for part in (PROMPT, VERIFY):
            if not (folder / part).is_file():
                raise TaskError(f"{folder / part}: missing")
        if (folder / FILES).exists() and not (folder / FILES).is_dir():
            raise TaskError(f"{folder / FILES}: not a folder")
        return cls(name, read_prompt(folder / PROMPT), folder)

    def prepare(self, workspace: Path, sandbox: Sandbox | None = None) -> None:
        """See `Task.prepare`."""
        empty(workspace)
        if (self.path / FILES).is_dir():
            shutil.copytree(self.path / FILES, workspace, symlinks=True, dirs_exist_ok=True)
        if (self.path / SETUP).is_file():
            self._must(SETUP, workspace, sandbox)

    def solve(self, workspace: Path, sandbox: Sandbox | None = None) -> bool:
        """See `Task.solve`."""
        if not (self.path / SOLVE).is_file():
            return False
        self._must(SOLVE, workspace, sandbox)
        return True

    def _must(self, script: str, workspace: Path, sandbox: Sandbox | None) -> None:
        ended = run_script(self.path / script, workspace, self.setup_seconds, sandbox=sandbox)
        if ended.status != 0:
            late = f"did not end within {self.setup_seconds:g} s"
            how = late if ended.status is None else f"exit status {ended.status}"
            raise TaskError(f"{self.path / script}: {how}\n{ended.log}")

    def verify(self, workspace: Path, sandbox: Sandbox | None = None) -> Score:
        """See `Task.verify`."""
        if not workspace.is_dir():
            return Score(None, log=f"{workspace}: the workspace is gone")
        ended = run_script(self.path / VERIFY, workspace, self.verify_seconds, sandbox=sandbox)
        if ended.status is None:
            return Score(None, log=f"{ended.log}\n[{VERIFY} did not end within {self.verify_seconds:g} s]")
        if ended.status == 1:
            return Score(0.0, _parts(ended.stdout), ended.log)
        if ended.status != 0:
            return Score(None, log=f"{ended.log}\n[{VERIFY} ended with status {ended.status}]")
        # Only on success: a failing comparison may well have printed a line that the harness wrote.
        last = ended.stdout.rstrip().rpartition("\n")[2]
        if said := _REWARD.fullmatch(last.strip()):
            reward = number(said[1])
            if reward is None:
                return Score(None, log=f"{ended.log}\n[not a finite reward: {said[1]}]")
            return Score(reward, _parts(ended.stdout), ended.log)
        return Score(1.0, _parts(ended.stdout), ended.log)


def _parts(stdout: str) -> dict[str, float]:
    matches = (_PART.fullmatch(line.strip()) for line in stdout.splitlines())
    numbers = ((match[1], number(match[2])) for match in matches if match and match[1] != TASK)
    return {name: value for name, value in numbers if value is not None}
