"""Where a training run stands, in one file that is replaced whole: what a restart goes on from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from replay.records import NewBatch, NewBatchRow

FILE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """After the update that made `version`. Paths are relative to the run's directory.

    `batch` is what that update was made from; it may not be in the record yet. `adapter` is None without LoRA.
    """

    version: int
    model: str
    weights: str
    optimizer: str
    adapter: str | None
    batch: NewBatch

    def write(self, directory: Path) -> None:
        """Put it in place of the last one."""
        partial = directory / f"{FILE}.partial"
        partial.write_text(json.dumps(asdict(self), indent=2) + "\n")
        partial.replace(directory / FILE)

    @classmethod
    def read(cls, directory: Path) -> RunState | None:
        """The state of the run in `directory`; None where none was begun."""
        path = directory / FILE
        if not path.is_file():
            return None
        found = json.loads(path.read_text())
        batch = found.pop("batch")
        rows = [NewBatchRow(**row) for row in batch.pop("rows")]
        return cls(batch=NewBatch(rows=rows, **batch), **found)
