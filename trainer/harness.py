"""Harnesses: unmodified programs, described in `harnesses.toml`, each installed in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SHIPPED = Path(__file__).with_name("harnesses.toml")
DEFAULT_ROOT = Path(".harness")
_STAMP = "harnesstap-installed"
# What a harness may see of our own environment. Keys, base URLs and settings of the user are not among it.
_INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SHELL", "USER", "LOGNAME", "TMPDIR")


class HarnessError(RuntimeError):
    """A harness is unknown, badly described, not installed, or could not be installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """How to run one harness. `command` has `{task}` where the prompt goes; its first word is a program.

    `package` and `version` name what :func:`install` installs from PyPI; None for a program that is there already.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    package: str | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        if not any("{task}" in word for word in self.command[1:]):
            raise HarnessError(f"harness {self.name}: no argument of its command has {{task}}: {self.command}")

    def argv(self, prompt: str, program: Path) -> list[str]:
        """The argument vector that gives `prompt` to the installed `program`."""
        return [str(program), *(word.replace("{task}", prompt) for word in self.command[1:])]


def load(path: Path = SHIPPED) -> dict[str, Harness]:
    """The harnesses that a TOML file like `harnesses.toml` describes, by name. Raises HarnessError naming the fault."""
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise HarnessError(f"{path}: {error}") from error
    known = {"command", "env", "package", "version"}
    found = {}
    for name, table in tables.items():
        if not isinstance(table, dict) or not isinstance(table.get("command"), list) or not table["command"]:
            raise HarnessError(f"{path}: [{name}] needs a command, a list of words")
        if unknown := sorted(table.keys() - known):
            raise HarnessError(f"{path}: [{name}] has unknown keys: {', '.join(unknown)}")
        found[name] = Harness(
            name=name,
            command=tuple(map(str, table["command"])),
            env={key: str(value) for key, value in table.get("env", {}).items()},
            package=table.get("package"),
            version=table.get("version"),
        )
    return found


def get(name: str, path: Path = SHIPPED) -> Harness:
    """The harness called `name`; raises HarnessError that lists those there are."""
    known = load(path)
    if name not in known:
        raise HarnessError(f"no harness called {name!r} in {path}; there are: {', '.join(sorted(known))}")
    return known[name]


def environment(harness: Harness, *, program: Path, home: Path, proxy: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a harness process, with `home` as its HOME and `proxy`'s variables on top."""
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    # The directory itself, not a link's target: a virtual environment is recognised by where its program lies.
    env["PATH"] = os.pathsep.join([str(program.parent), env.get("PATH", os.defpath)])
    return {**env, "HOME": str(home), "TERM": "dumb", "NO_COLOR": "1", **harness.env, **proxy}


def find(harness: Harness, root: Path = DEFAULT_ROOT) -> Path:
    """The installed program of `harness`: below `root`, or on PATH when it is no package of ours to install."""
    word = harness.command[0]
    program = root.absolute() / harness.name / "bin" / word
    if program.exists():
        return program
    if harness.package is None and (elsewhere := shutil.which(word)):
        return Path(elsewhere)
    raise HarnessError(f"{harness.name} is not installed in {root}: run `trainer install {harness.name}`")


def install(
    harness: Harness, root: Path = DEFAULT_ROOT, *, say: Callable[[str], None] = lambda _: None, log: Path | None = None
) -> Path:
    """Install `harness` in `root`/NAME, unless that version is there already; return its program.

    Uses uv where it is on PATH, pip otherwise. `log` takes the installer's output; without it, it goes to stderr.
    Raises HarnessError with the command that failed.
    """
    if harness.package is None:
        return find(harness, root)
    wanted = harness.package if harness.version is None else f"{harness.package}=={harness.version}"
    directory = root.absolute() / harness.name
    stamp = directory / _STAMP
    program = directory / "bin" / harness.command[0]
    if stamp.is_file() and stamp.read_text() == wanted and program.exists():
        return program
    if directory.exists():
        shutil.rmtree(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    say(f"installing {wanted} into {directory}")
    uv = shutil.which("uv")
    python = str(directory / "bin" / "python")
    if uv:
        steps = [
            [uv, "venv", "--quiet", "--python", sys.executable, str(directory)],
            [uv, "pip", "install", "--quiet", "--python", python, wanted],
        ]
    else:
        steps = [
            [sys.executable, "-m", "venv", str(directory)],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", wanted],
        ]
    for step in steps:
        _run(step, log)
    if not program.exists():
        raise HarnessError(f"{wanted} has no command {harness.command[0]}: {program} does not exist")
    stamp.write_text(wanted)
    return program


def _run(argv: list[str], log: Path | None) -> None:
    # Our own virtual environment must not be taken for the one to install into.
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            status = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env).returncode
    else:
        status = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=env).returncode
    if status != 0:
        where = "" if log is None else f"; see {log}"
        raise HarnessError(f"`{' '.join(argv)}` ended with status {status}{where}")
