"""What an export says of itself, in a file beside its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NOTE = "harnesstap.json"


def write_note(directory: Path, *, weight_version: str, tied: bool) -> None:
    """Note the weight version, and whether the policy shares its input and output embeddings."""
    (directory / NOTE).write_text(json.dumps({"weight_version": weight_version, "tied": tied}) + "\n")


def read_note(checkpoint: Path) -> dict[str, Any]:
    """What was noted in `checkpoint`: `weight_version` and `tied`; empty for any other checkpoint."""
    path = checkpoint / NOTE
    if not path.is_file():
        return {}
    note: dict[str, Any] = json.loads(path.read_text())
    return note
