"""Harbor's task format, run natively: without Docker, in a sandbox.

    task/
        task.toml               timeouts: [agent].timeout_sec, [verifier].timeout_sec; [verifier].env
        instruction.md          what the harness is asked
        environment/Dockerfile  how the workspace comes about
        tests/test.sh           run as /tests/test.sh; writes /logs/verifier/reward.json or reward.txt
        solution/solve.sh       optional; run as /solution/solve.sh

The base image is this machine. Of the Dockerfile WORKDIR (the workspace; default /app), ENV, COPY and ADD of local
files into the workspace, and RUN are carried out, RUN in the sandbox; FROM, LABEL, ARG, USER, EXPOSE, CMD and
ENTRYPOINT change nothing here. What needs a real container (another service, an install by a package manager) fails as
a TaskError: run those tasks with Harbor itself, whose agents take the variables of `tap env`.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

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

CONFIG, INSTRUCTION, DOCKERFILE = "task.toml", "instruction.md", "environment/Dockerfile"
DEFAULT_WORKDIR = "/app"
_NOTHING_HERE = {"FROM", "LABEL", "ARG", "USER", "EXPOSE", "CMD", "ENTRYPOINT", "SHELL", "MAINTAINER", "HEALTHCHECK"}
_STEPS = {"COPY", "ADD", "RUN"}


@dataclass(frozen=True)
class Environment:
    """What a Dockerfile comes to here: the workspace's name, variables, and the steps that fill it, in order."""

    workdir: str = DEFAULT_WORKDIR
    variables: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class HarborTask(Task):
    """A task as the module describes it. `agent_seconds` is None where task.toml does not say."""

    environment: Environment = Environment()
    agent_seconds: float | None = None
    verify_seconds: float = VERIFY_SECONDS
    verify_variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> HarborTask:
        """The task in `folder`; TaskError if it is incomplete, or cannot be run without a container."""
        name = check_name(folder)
        for part in (CONFIG, INSTRUCTION, "tests/test.sh"):
            if not (folder / part).is_file():
                raise TaskError(f"{folder / part}: missing")
        try:
            config = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise TaskError(f"{folder / CONFIG}: {error}") from error
        for compose in ("docker-compose.yaml", "docker-compose.yml"):
            if (folder / "environment" / compose).exists():
                raise TaskError(f"{folder / 'environment' / compose}: needs containers; run this task with Harbor")
        dockerfile = folder / DOCKERFILE
        return cls(
            name,
            read_prompt(folder / INSTRUCTION),
            folder,
            environment=read_dockerfile(dockerfile) if dockerfile.is_file() else Environment(),
            agent_seconds=_seconds(config, "agent", folder),
            verify_seconds=_seconds(config, "verifier", folder) or VERIFY_SECONDS,
            verify_variables={k: str(v) for k, v in config.get("verifier", {}).get("env", {}).items()},
        )

    @property
    def inside(self) -> str:
        """Its WORKDIR."""
        return self.environment.workdir

    @property
    def seconds(self) -> float | None:
        """What task.toml gives the agent."""
        return self.agent_seconds

    @property
    def needs_sandbox(self) -> bool:
        """Always: /tests and /logs are where its scripts expect them."""
        return True

    def prepare(self, workspace: Path, sandbox: Sandbox | None = None) -> None:
        """See `Task.prepare`."""
        empty(workspace)
        for step, rest in self.environment.steps:
            if step == "RUN":
                self._run(rest, workspace, _given(self, sandbox))
            else:
                self._copy(rest, workspace)

    def verify(self, workspace: Path, sandbox: Sandbox | None = None) -> Score:
        """See `Task.verify`."""
        if not workspace.is_dir():
            return Score(None, log=f"{workspace}: the workspace is gone")
        with tempfile.TemporaryDirectory(prefix="task-logs-") as logs:
            (Path(logs) / "verifier").mkdir()
            ended = run_script(
                self.path / "tests" / "test.sh",
                workspace,
                self.verify_seconds,
                sandbox=_given(self, sandbox),
                inside=self.inside,
                script_inside="/tests/test.sh",
                binds={Path(logs): "/logs"},
                shown={self.path / "tests": "/tests"},
                variables={**self.environment.variables, **self.verify_variables},
            )
            if ended.status is None:
                return Score(None, log=f"{ended.log}\n[tests/test.sh did not end within {self.verify_seconds:g} s]")
            return _reward(Path(logs) / "verifier", ended.log)

    def solve(self, workspace: Path, sandbox: Sandbox | None = None) -> bool:
        """See `Task.solve`."""
        solution = self.path / "solution"
        if not (solution / "solve.sh").is_file():
            return False
        ended = run_script(
            solution / "solve.sh",
            workspace,
            self.agent_seconds or SETUP_SECONDS,
            sandbox=_given(self, sandbox),
            inside=self.inside,
            script_inside="/solution/solve.sh",
            shown={solution: "/solution"},
            variables=self.environment.variables,
        )
        if ended.status != 0:
            raise TaskError(f"{solution / 'solve.sh'}: exit status {ended.status}\n{ended.log}")
        return True

    def _run(self, command: str, workspace: Path, sandbox: Sandbox) -> None:
        with tempfile.TemporaryDirectory(prefix="task-run-") as scratch:
            script = Path(scratch) / "run.sh"
            script.write_text(f"set -e\n{command}\n")
            ended = run_script(
                script, workspace, SETUP_SECONDS, sandbox=sandbox, inside=self.inside,
                variables=self.environment.variables,
            )  # fmt: skip
        if ended.status != 0:
            raise TaskError(
                f"{self.path / DOCKERFILE}: `RUN {command}` does not work without a container (status {ended.status}); "
                f"run this task with Harbor\n{ended.log}"
            )

    def _copy(self, words: str, workspace: Path) -> None:
        *sources, target = [word for word in _words(words) if not word.startswith("--")]
        place = PurePosixPath(self.inside) / target
        if not place.is_relative_to(self.inside):
            raise TaskError(
                f"{self.path / DOCKERFILE}: COPY to {target} lies outside {self.inside}: it needs a container"
            )
        to = workspace / place.relative_to(self.inside)
        context = (self.path / "environment").resolve()
        for source in sources:
            found = sorted(context.glob(source)) if source not in (".", "./") else [context]
            if not found or any(not path.resolve().is_relative_to(context) for path in found):
                raise TaskError(f"{self.path / DOCKERFILE}: COPY {source}: not in {context}")
            for path in found:
                if path.is_dir():
                    shutil.copytree(path, to, symlinks=True, dirs_exist_ok=True, ignore=_without_dockerfile)
                elif target.endswith("/") or len(found) + len(sources) > 2 or to.is_dir():
                    to.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, to / path.name)
                else:
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, to)


def read_dockerfile(path: Path) -> Environment:
    """What `path` comes to without Docker. TaskError names an instruction that means something else."""
    workdir, variables, steps = DEFAULT_WORKDIR, dict[str, str](), list[tuple[str, str]]()
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if line.startswith("#"):
            continue
        name, _, rest = line.partition(" ")
        match name.upper():
            case "WORKDIR" if not steps or PurePosixPath(workdir) / rest.strip() == PurePosixPath(workdir):
                workdir = str(PurePosixPath(workdir) / rest.strip())
            case "ENV":
                variables |= _variables(rest)
            case step if step in _STEPS:
                steps.append((step, rest.strip()))
            case known if known in _NOTHING_HERE:
                pass
            case _:
                raise TaskError(
                    f"{path}: `{line}` cannot be carried out without a container; run this task with Harbor"
                )
    return Environment(workdir, variables, tuple(steps))


def _given(task: Task, sandbox: Sandbox | None) -> Sandbox:
    if sandbox is None:
        raise TaskError(f"{task.path}: a task in Harbor's format needs a sandbox (bubblewrap)")
    return sandbox


def _reward(folder: Path, log: str) -> Score:
    """As Harbor reads it: reward.json before reward.txt; a file that is not as it has to be is no reward."""
    if (folder / "reward.json").is_file():
        try:
            found: Any = json.loads((folder / "reward.json").read_text())
        except ValueError as error:
            return Score(None, log=f"{log}\n[reward.json: {error}]")
        rewards = {str(key): number(value) for key, value in found.items()} if isinstance(found, dict) else {}
        if not rewards or None in rewards.values():
            return Score(None, log=f"{log}\n[reward.json is no object of numbers: {found!r}]")
        parts = {key: value for key, value in rewards.items() if value is not None and key not in ("reward", "task")}
        if "reward" not in rewards and len(rewards) > 1:
            return Score(None, log=f"{log}\n[reward.json names several rewards, none of them `reward`: {found!r}]")
        return Score(rewards.get("reward", next(iter(rewards.values()))), parts, log)
    if (folder / "reward.txt").is_file():
        reward = number((folder / "reward.txt").read_text())
        return Score(reward, log=log if reward is not None else f"{log}\n[reward.txt is no number]")
    return Score(None, log=f"{log}\n[tests/test.sh wrote neither reward.json nor reward.txt]")


def _seconds(config: Mapping[str, Any], section: str, folder: Path) -> float | None:
    value = config.get(section, {}).get("timeout_sec")
    if value is not None and (number(value) or 0) <= 0:
        raise TaskError(f"{folder / CONFIG}: [{section}] timeout_sec must be a positive number, not {value!r}")
    return number(value)


def _variables(rest: str) -> dict[str, str]:
    words = shlex.split(rest)
    if words and "=" not in words[0]:
        return {words[0]: " ".join(words[1:])}
    return dict(word.split("=", 1) for word in words)


def _words(rest: str) -> list[str]:
    return list(json.loads(rest)) if rest.startswith("[") else shlex.split(rest)


def _without_dockerfile(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "Dockerfile" and Path(folder).name == "environment"]
