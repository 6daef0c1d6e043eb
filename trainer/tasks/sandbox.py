"""A bubblewrap sandbox: what runs in it sees the system's programs, its own HOME and workspace, and nothing else.

The rest of the machine (other sessions, the user's files and keys) is not there; system folders are read-only; /tmp is
its own; whatever it started ends with it. The network is the machine's, since the proxy listens on its loopback.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix", "sys")


class SandboxError(RuntimeError):
    """There is no working bubblewrap here; the message says what was tried."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandboxed command may use, as the kernel's resource limits; None: no limit.

    `processes` counts those of the user on the machine, `file_mib` the size of one file, `cpu_seconds` of one process.
    """

    processes: int | None = None
    file_mib: int | None = 1024
    cpu_seconds: int | None = None

    def words(self) -> list[str]:
        """As options of `prlimit`."""
        asked = {
            "nproc": self.processes,
            "fsize": None if self.file_mib is None else self.file_mib << 20,
            "cpu": self.cpu_seconds,
            "core": 0,
        }
        return [f"--{name}={value}" for name, value in asked.items() if value is not None]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How commands are wrapped. `readable` are paths outside the system's folders that they need, as they are."""

    program: str
    readable: tuple[Path, ...] = ()
    limits: Limits = Limits()

    @classmethod
    def find(cls, *readable: Path) -> Sandbox:
        """Raises SandboxError where bubblewrap is missing or may not make namespaces."""
        program = shutil.which("bwrap")
        if program is None:
            raise SandboxError("bubblewrap is not installed (Debian, Fedora: the package bubblewrap)")
        if (fault := _fault(program)) is not None:
            raise SandboxError(f"bubblewrap does not work here: {fault}")
        return cls(program, tuple(readable))

    def wrap(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        home: Path,
        inside: str | None = None,
        binds: Mapping[Path, str] | None = None,
        shown: Mapping[Path, str] | None = None,
    ) -> list[str]:
        """`argv` in the sandbox, started in `workspace`, which appears as `inside` (default: under its own path).

        `binds` and `shown` are further paths, writable and read-only, by what they are called inside. `home` appears
        under its own path; HOME is for the caller to set.
        """
        at = inside or str(workspace)
        words = [self.program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--tmpfs", "/"]
        for name in _SYSTEM:
            path = Path("/") / name
            if path.is_symlink():
                words += ["--symlink", os.readlink(path), str(path)]
            elif path.is_dir():
                words += ["--ro-bind", str(path), str(path)]
        words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--dir", "/var/tmp"]
        for path in self.readable:
            words += ["--ro-bind-try", str(path), str(path)]
        for path, name in {home: str(home), workspace: at, **(binds or {})}.items():
            words += ["--bind", str(path), name]
        for path, name in (shown or {}).items():
            words += ["--ro-bind", str(path), name]
        words += ["--chdir", at, "--"]
        if (prlimit := shutil.which("prlimit")) is not None:
            words += [prlimit, *self.limits.words()]
        return [*words, *argv]


def needs_of(program: Path) -> tuple[Path, ...]:
    """What an installed harness reads outside the system's folders: its installation, and its interpreter's."""
    needs = [program.parents[1]]
    for name in ("python", "node"):
        beside = program.with_name(name)
        found = beside if beside.exists() else Path(shutil.which(name) or "/usr/bin/none")
        real = found.resolve()
        if real.exists() and not str(real).startswith("/usr/bin/"):
            needs.append(real.parents[1])
    return tuple(dict.fromkeys(path for path in needs if path != Path("/")))


@functools.cache
def _fault(program: str) -> str | None:
    """What goes wrong when an empty sandbox is made; None when nothing does."""
    words = [program, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--dev", "/dev", "true"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else (tried.stderr.strip() or f"exit status {tried.returncode}")
