"""A harness process: the whole of its environment, and what it leaves running."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from certs.harnesses.table import Harness

INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SHELL", "USER", "LOGNAME", "TMPDIR")
"""What a harness may see of our own environment. Keys, base URLs and settings of the user are not among it."""


def environment(harness: Harness, *, program: Path, home: Path, proxy: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a harness process, with `home` as its HOME and `proxy`'s variables on top."""
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    # The directory itself, not a link's target: a virtual environment is recognised by where its program lies.
    env["PATH"] = os.pathsep.join([str(program.parent), env.get("PATH", os.defpath)])
    return {**env, "HOME": str(home), "TERM": "dumb", "NO_COLOR": "1", **harness.env, **proxy}


def leftovers(home: Path) -> list[int]:
    """Processes that were started with `home` as their HOME and still run: daemons that a harness left behind.

    Needs /proc (Linux); elsewhere nothing is found. Only what this user may look at is.
    """
    wanted = b"HOME=" + os.fsencode(home)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or another user's
            continue
        if wanted in variables:
            found.append(int(entry.name))
    return [pid for pid in sorted(found) if pid != os.getpid()]
