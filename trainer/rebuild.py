"""A recorded batch, made again from its row ids: the very rows that a step was trained on."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from replay.batches import StoredBatch
from replay.reader import Reader
from trainer.batches import Credited
from trainer.export import export
from trainer.selection import tokens_of
from trainer.sequences import row_of


class Changed(ValueError):
    """The record no longer gives the rows that were trained; the message says what differs."""


def digest(rows: Sequence[Credited]) -> str:
    """sha256, 64 hex digits, over all that the loss is computed from: ids, masks, logprobs and advantages, in order."""
    running = hashlib.sha256()
    for item in rows:
        for part in (item.row.ids, item.row.mask, item.row.logprobs, np.float64(item.advantage)):
            running.update(part.tobytes())
    return running.hexdigest()


def rebuild(reader: Reader, stored: StoredBatch) -> list[Credited]:
    """The rows of a GRPO batch, in order, with the advantages they were trained with.

    Raises Changed when they are not, bit for bit, those whose digest was recorded; ValueError for a batch of another
    method, which has no rows.
    """
    recorded = stored.batch.query.get("digest")
    if recorded is None:
        method = stored.batch.query.get("method", "unknown")
        raise ValueError(f"batch {stored.batch.id} has no rows to rebuild: its method is {method}")
    rows = []
    for entry in stored.rows:
        trained = set((entry.info or {}).get("turns", ()))
        if trained:
            path = [tokens_of(reader, turn) for turn in reader.path(reader.turn(entry.turn_id))]
            rows.append(Credited(row_of(path, trained), entry.advantage))
    if (found := digest(rows)) != recorded:
        raise Changed(
            f"the rows of batch {stored.batch.id} are not those that were trained (digest {recorded[:16]}, now "
            f"{found[:16]}): turns were deleted or rewritten since"
        )
    return rows


def write_rows(rows: Sequence[Credited], path: Path) -> None:
    """One JSON object a line: session, turns, ids, mask (0 or 1), logprobs, advantage."""
    with path.open("w") as file:
        for item in rows:
            row = item.row
            line = {
                "session": row.session,
                "turns": row.turns,
                "ids": row.ids.tolist(),
                "mask": row.mask.astype(int).tolist(),
                "logprobs": row.logprobs.tolist(),
                "advantage": item.advantage,
            }
            file.write(json.dumps(line) + "\n")


def step_again(rows: Sequence[Credited], stored: StoredBatch, run: Path) -> list[str]:
    """Make the step of a batch again; the names of the tensors that differ from what it made then.

    `run` is the directory of `trainer grpo`, which keeps the weights and moments of its last steps. Raises
    FileNotFoundError when those before this step are gone.
    """
    from trainer.grpo import Learner, Settings  # torch and TRL
    from trainer.policy import load_policy

    settings = dict(stored.batch.query["settings"])
    if settings.get("lora"):
        raise ValueError("a step on adapters cannot be made again yet: only its rows")
    before, made = Path(stored.batch.query["trained_from"]), Path(str(stored.batch.checkpoint))
    for directory in (before, made):
        if not (directory / "config.json").is_file():
            raise FileNotFoundError(f"{directory} is gone: a run keeps the weights of its last steps only")
    learner = Learner(load_policy(before), Settings(**settings))
    moments = run / "optimizer" / f"{before.name}.pt"
    if before.parent == made.parent:  # else it was the run's first step, from fresh moments
        if not moments.is_file():
            raise FileNotFoundError(f"{moments} is gone: a run keeps the moments of its last steps only")
        learner.load_optimizer(moments)
    learner.step(rows)
    with tempfile.TemporaryDirectory(prefix="again-") as scratch:
        return differing(export(learner.policy, Path(scratch) / "weights", version="again"), made)


def differing(one: Path, other: Path) -> list[str]:
    """The names of the tensors that differ in any bit between two checkpoints."""
    from safetensors import safe_open

    def tensors(directory: Path) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for path in sorted(directory.glob("*.safetensors")):
            with safe_open(str(path), "numpy") as file:
                found |= {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
        if not found:
            raise ValueError(f"{directory} holds no safetensors")
        return found

    mine, theirs = tensors(one), tensors(other)
    return sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
