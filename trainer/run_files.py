"""The files of a training run that grow and go: the line of each step, and the exports that are kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
_KEPT = 3


def log_step(directory: Path, line: Mapping[str, Any]) -> None:
    """Add the line of a step, which has at least its `version`."""
    with (directory / METRICS).open("a") as file:
        file.write(json.dumps(dict(line)) + "\n")


def last_logged(directory: Path) -> int:
    """The version of the last line that was written, 0 where there is none."""
    path = directory / METRICS
    lines = path.read_text().splitlines() if path.is_file() else []
    return int(json.loads(lines[-1])["version"]) if lines else 0


def prune(directory: Path, version: int) -> None:
    """Keep the newest few exports: the server may still read the last, `version`, and falls back to the one before."""
    for kept in (directory / "weights", directory / "adapter"):
        for path in kept.iterdir() if kept.is_dir() else ():
            if path.name.isdecimal() and int(path.name) <= version - _KEPT:
                shutil.rmtree(path)
    for path in (directory / "optimizer").iterdir():
        if path.stem.isdecimal() and int(path.stem) < version - 1:
            path.unlink()  # twice the size of the weights: the one before is kept, so that a step can be redone
