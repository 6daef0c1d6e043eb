"""What every kind of task has in common."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer.tasks.sandbox import Sandbox

# A task's name becomes part of session names, which travel as the user name of a proxy URL.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SETUP_SECONDS, VERIFY_SECONDS = 120.0, 60.0


class TaskError(ValueError):
    """A task set, a task or a workspace is not as it has to be; the message names the path."""


@dataclass(frozen=True)
class Score:
    """What a task's own test said. `reward` is None if it could not tell; `log` is the end of all that it printed."""

    reward: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    log: str = ""


@dataclass(frozen=True)
class Task(ABC):
    """One task: its name (unique in its set), the text the harness is given, and its folder (absolute)."""

    name: str
    prompt: str
    path: Path

    @property
    def inside(self) -> str | None:
        """What the workspace is called in a sandbox; None: by its own path."""
        return None

    @property
    def seconds(self) -> float | None:
        """How long a harness may work on it, where the task says so."""
        return None

    @property
    def needs_sandbox(self) -> bool:
        """Whether its scripts count on paths that only a sandbox can give them."""
        return False

    @abstractmethod
    def prepare(self, workspace: Path, sandbox: Sandbox | None = None) -> None:
        """Fill `workspace` (made if absent, else it must be empty). Raises TaskError."""

    @abstractmethod
    def verify(self, workspace: Path, sandbox: Sandbox | None = None) -> Score:
        """Score what is in `workspace`. What goes wrong is a reward of None, with a log."""

    @abstractmethod
    def solve(self, workspace: Path, sandbox: Sandbox | None = None) -> bool:
        """Do the task as its author would, to try its test; False where the task brings no solution."""


def check_name(folder: Path) -> str:
    """The name of the task in `folder`; raises TaskError when it cannot be one."""
    if not _NAME.fullmatch(folder.name):
        raise TaskError(f"{folder}: a task's name is letters, digits, '.', '_', '-', not one of those signs first")
    return folder.name


def read_prompt(path: Path) -> str:
    """The text of a prompt file; raises TaskError when there is none."""
    try:
        prompt = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: not UTF-8 ({error})") from error
    if not prompt:
        raise TaskError(f"{path}: empty")
    return prompt


def empty(workspace: Path) -> Path:
    """`workspace`, made if absent; raises TaskError when something is in it."""
    workspace.mkdir(parents=True, exist_ok=True)
    if any(workspace.iterdir()):
        raise TaskError(f"{workspace}: not empty")
    return workspace


def number(text: object) -> float | None:
    """A finite number; None for anything else."""
    try:
        value = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
