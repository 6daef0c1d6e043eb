"""A command that cannot go round the proxy (Linux, as root or where a user may make namespaces).

It runs in a network of its own, whose only way out is the proxy; what it tries to reach directly is refused at once and
noted. It is no jail: files, and sockets in the file system, are the machine's. See `trainer.tasks.sandbox` for those.

A wrapped command is started with the variables of `certs.environment`, which say where the proxy is.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Mode = Literal["isolate", "no-env", "count"]
"""`isolate`: a network of its own. `no-env`: one in which every host is the proxy, so that no variable is needed.
`count`: no network, only a look at what it connects to."""

NOT_ISOLATED = 125
"""Exit status when the command was not started, as env's and timeout's."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a command tried. `direct` are connections past the proxy as `host:port`, `refused` what the proxy itself let
    not out (of `no-env`; otherwise the command was told), `asked` the names it looked up."""

    direct: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()


def wrap(argv: Sequence[str], mode: Mode = "isolate", *, report: Path | None = None) -> list[str]:
    """The command line that runs `argv` so; its status, signals and terminal stay its own.

    Args:
        argv: the command.
        mode: how.
        report: a file for what it tried; otherwise that is told on stderr at the end.
    """
    told = [] if report is None else ["--report", str(report)]
    # -I: whatever Python variables the command gets are not ours.
    return [sys.executable, "-I", "-m", "certs.isolation", "--mode", mode, *told, "--", *argv]


def read_report(path: Path) -> Report:
    """What a command tried, from the file that `wrap` was given."""
    told = json.loads(path.read_text())
    return Report(**{name: tuple(values) for name, values in told.items()})


@functools.cache
def why_not() -> str | None:
    """Why commands cannot be isolated here; None when they can."""
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    env = {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:9"}
    tried = subprocess.run(wrap(["true"]), env=env, capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else tried.stderr.strip()
