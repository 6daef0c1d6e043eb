"""Installing harnesses, each in a folder of its own: ROOT/NAME/bin/PROGRAM, pinned, from npm or PyPI.

A folder counts as installed once it carries a stamp of what is in it; one without is taken for half-made and made
anew. Of several installers of one harness one works, the others wait and find it done.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from certs.files import locked
from certs.harnesses.table import Harness, HarnessError

DEFAULT_ROOT = Path(".harness")
_STAMP = "harnesstap-installed"


def find(harness: Harness, root: Path = DEFAULT_ROOT) -> Path:
    """The installed program of `harness`: below `root`, or on PATH when it is no package of ours to install."""
    word = harness.command[0]
    if harness.package is None:
        if elsewhere := shutil.which(word):
            return Path(elsewhere)
        raise HarnessError(f"{harness.name}: no command {word} on PATH")
    directory = root.absolute() / harness.name
    there = _stamped(directory)
    if there is None:
        raise HarnessError(f"{harness.name} is not installed in {root}: run `tap harness install {harness.name}`")
    if there != _wanted(harness):
        raise HarnessError(f"{directory} has {there}, not {_wanted(harness)}: run `tap harness install {harness.name}`")
    return directory / "bin" / word


def install(
    harness: Harness, root: Path = DEFAULT_ROOT, *, say: Callable[[str], None] = lambda _: None, log: Path | None = None
) -> Path:
    """Install `harness` in `root`/NAME, unless that version is there already; return its program.

    npm's packages need npm; PyPI's are installed by uv where it is on PATH, by pip otherwise. `log` takes the
    installer's output; without it, it goes to stderr. Raises HarnessError with the command that failed.
    """
    if harness.package is None:
        return find(harness, root)
    directory = root.absolute() / harness.name
    program = directory / "bin" / harness.command[0]
    root.mkdir(parents=True, exist_ok=True)
    with locked(root.absolute(), f".{harness.name}.lock"):
        if _stamped(directory) == _wanted(harness) and program.exists():
            return program
        if directory.exists():
            shutil.rmtree(directory)
        say(f"installing {_wanted(harness)} into {directory}")
        for step in _from_npm(harness, directory) if harness.registry == "npm" else _from_pypi(harness, directory):
            _run(step, directory, log)
        if not program.exists():
            raise HarnessError(f"{harness.package} has no command {harness.command[0]}: {program} does not exist")
        (directory / _STAMP).write_text(_wanted(harness))
    return program


def _wanted(harness: Harness) -> str:
    """What a finished folder's stamp says."""
    node = "" if harness.node is None else f" with node {harness.node}"
    return f"{harness.registry}:{harness.package} {harness.version}{node}"


def _stamped(directory: Path) -> str | None:
    stamp = directory / _STAMP
    return stamp.read_text() if stamp.is_file() else None


def _from_npm(harness: Harness, directory: Path) -> list[list[str]]:
    """npm's global layout puts commands in bin/, beside a Node.js of their own."""
    if shutil.which("npm") is None:
        raise HarnessError(f"{harness.name} is a package of npm, and there is no npm on PATH: install Node.js")
    npm = ["npm", "install", "--global", "--prefix", str(directory), "--no-audit", "--no-fund", "--loglevel=error"]
    # First of all Node, so that what is installed next sees the one it will run under.
    wanted = [f"{harness.package}@{harness.version}"]
    return [[*npm, one] for one in ([f"node@{harness.node}"] if harness.node else []) + wanted]


def _from_pypi(harness: Harness, directory: Path) -> list[list[str]]:
    wanted, python = f"{harness.package}=={harness.version}", str(directory / "bin" / "python")
    if uv := shutil.which("uv"):
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(directory)],
            [uv, "pip", "install", "--quiet", "--python", python, wanted],
        ]
    return [
        [sys.executable, "-m", "venv", str(directory)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", wanted],
    ]


def _run(argv: list[str], directory: Path, log: Path | None) -> None:
    # Our own virtual environment must not be taken for the one to install into.
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}
    env["PATH"] = os.pathsep.join([str(directory / "bin"), env.get("PATH", os.defpath)])
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            status = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env).returncode
    else:
        status = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=env).returncode
    if status != 0:
        where = "" if log is None else f"; see {log}"
        raise HarnessError(f"`{' '.join(argv)}` ended with status {status}{where}")
