"""The table of harnesses: `harnesses.toml`, or a file like it, read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

SHIPPED = Path(__file__).with_name("harnesses.toml")

Registry = Literal["npm", "pypi"]
DialectName = Literal["chat", "responses", "messages", "gemini"]


class HarnessError(RuntimeError):
    """A harness is unknown, badly described, not installed, or could not be installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """How to run one harness. `command` has `{task}` where the task goes; its first word is a program.

    `package`, `registry` and `version` say what is installed; None for a program that is there already. `node` is the
    release of Node.js that is installed beside an npm package, None for the one there is.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    package: str | None = None
    registry: Registry | None = None
    version: str | None = None
    node: str | None = None
    agent: str | None = None
    """The first word of its user agent, lower case; None where it only names a library."""
    dialects: tuple[DialectName, ...] = ()
    """What it speaks; what its command line makes it speak comes first."""
    quirks: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    """Of a Python harness: modules that it imports late. Where there are some, its sessions may be forks of one process
    that has imported everything."""

    def __post_init__(self) -> None:
        if not any("{task}" in word for word in self.command[1:]):
            raise HarnessError(f"harness {self.name}: no argument of its command has {{task}}: {self.command}")
        if self.package is None:
            if self.registry or self.node:
                raise HarnessError(f"harness {self.name}: a registry or node without a package")
            return
        if self.version is None or self.registry is None:
            raise HarnessError(f"harness {self.name}: package {self.package} needs a registry and a version")
        if self.registry not in get_args(Registry):
            raise HarnessError(f"harness {self.name}: registry {self.registry!r} is none of npm, pypi")
        if self.node is not None and self.registry != "npm":
            raise HarnessError(f"harness {self.name}: node is for packages of npm")
        if unknown := set(self.dialects) - set(get_args(DialectName)):
            raise HarnessError(f"harness {self.name}: unknown dialects: {', '.join(sorted(unknown))}")

    def argv(self, task: str, program: Path) -> list[str]:
        """The argument vector that gives `task` to the installed `program`."""
        return [str(program), *(word.replace("{task}", task) for word in self.command[1:])]


def load(path: Path = SHIPPED) -> dict[str, Harness]:
    """The harnesses that a TOML file like `harnesses.toml` describes, by name. Raises HarnessError naming the fault."""
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise HarnessError(f"{path}: {error}") from error
    return {name: _harness(path, name, table) for name, table in tables.items()}


def get(name: str, path: Path = SHIPPED) -> Harness:
    """The harness called `name`; raises HarnessError that lists those there are."""
    known = load(path)
    if name not in known:
        raise HarnessError(f"no harness called {name!r} in {path}; there are: {', '.join(sorted(known))}")
    return known[name]


_WORDS, _LISTS = ("package", "registry", "version", "node", "agent"), ("command", "dialects", "quirks", "preload")


def _harness(path: Path, name: str, table: Any) -> Harness:
    if not isinstance(table, dict) or not isinstance(table.get("command"), list) or not table["command"]:
        raise HarnessError(f"{path}: [{name}] needs a command, a list of words")
    if unknown := sorted(table.keys() - {*_WORDS, *_LISTS, "env"}):
        raise HarnessError(f"{path}: [{name}] has unknown keys: {', '.join(unknown)}")
    for key in _WORDS:
        if key in table and not isinstance(table[key], str):
            raise HarnessError(f"{path}: [{name}] {key} must be text, not {table[key]!r}")
    for key in _LISTS:
        if not isinstance(table.get(key, []), list):
            raise HarnessError(f"{path}: [{name}] {key} must be a list, not {table[key]!r}")
    if not isinstance(table.get("env", {}), dict):
        raise HarnessError(f"{path}: [{name}] env must be a table, not {table['env']!r}")
    fields: dict[str, Any] = {key: table[key] for key in _WORDS if key in table}
    fields |= {key: tuple(map(str, table[key])) for key in _LISTS if key in table}
    return Harness(name=name, env={key: str(value) for key, value in table.get("env", {}).items()}, **fields)
