"""Branches of a stored session: the harness run again, answered from the store up to a turn, and live from there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from replay.proxying import tap
from replay.reader import Reader
from replay.schema import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run for each branch. Empty texts leave `tap run`'s defaults; `workspace` is copied for each branch."""

    names: tuple[str, ...]
    command: tuple[str, ...]
    group: str
    task: str | None
    port: int
    store: str
    home: str
    folder: Path
    workspace: Path | None
    dummy_keys: tuple[str, ...] = ()
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch that has run: its session's name, the harness's exit code, where it ran, and its output."""

    name: str
    exit: int
    directory: Path
    log: Path


def branch_names(reader: Reader, session: Session, turn: int, count: int) -> tuple[str, ...]:
    """Names of new sessions: `NAME.at2.1`, `NAME.at2.2`, ..., going on behind those there are."""
    prefix = f"{session.name}.at{turn}."
    taken = [one.name.removeprefix(prefix) for one in reader.sessions(prefix=prefix)]
    first = max((int(number) for number in taken if number.isdecimal()), default=0) + 1
    return tuple(f"{prefix}{number}" for number in range(first, first + count))


def run(plan: Plan) -> Iterator[Branch]:
    """Run the harness once for each name, `jobs` at a time, behind the proxy that is running; in the order of names."""
    with ThreadPoolExecutor(plan.jobs) as pool:
        yield from pool.map(lambda name: _run_one(plan, name), plan.names)


def _run_one(plan: Plan, name: str) -> Branch:
    directory = Path.cwd()
    if plan.workspace is not None:
        directory = plan.folder / name
        shutil.copytree(plan.workspace, directory, symlinks=True)
    log = plan.folder / f"{name}.log"
    with log.open("wb") as out:
        done = subprocess.run(
            _command(plan, name), cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        )
    return Branch(name, done.returncode, directory, log)


def _command(plan: Plan, name: str) -> Sequence[str]:
    words = [*tap(), "run", "--session", name, "--port", str(plan.port), "--store", plan.store, "--group", plan.group]
    words += ["--task", plan.task] if plan.task is not None else []
    words += ["--home", plan.home] if plan.home else []
    for variable in plan.dummy_keys:
        words += ["--dummy-key", variable]
    return [*words, "--", *plan.command]
