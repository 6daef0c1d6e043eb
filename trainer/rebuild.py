"""A recorded batch, made again from its row ids: the very rows that a step was trained on."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from replay.batches import StoredBatch
from replay.reader import Reader
from trainer import ranks
from trainer.batches import Credited
from trainer.export import export
from trainer.selection import tokens_of
from trainer.sequences import row_of

if TYPE_CHECKING:
    from trainer.grpo import Learner


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

    `run` is the directory of `trainer grpo`, which keeps the weights, adapters and moments of its last steps. Raises
    FileNotFoundError when those before this step are gone, ValueError where another number of processes made it: their
    sums have another order.
    """
    processes = (stored.batch.stats or {}).get("processes", 1)
    if processes != ranks.size():
        raise ValueError(
            f"batch {stored.batch.id} was made by {processes} processes, and this is {ranks.size()}: the rows are the "
            "same, the weights need as many (accelerate launch ... -m trainer.cli rebuild ...)"
        )
    made = _kept(Path(str(stored.batch.checkpoint)), "config.json")
    learner = learner_before(stored, run)
    learner.step(rows)
    with tempfile.TemporaryDirectory(prefix="again-") as scratch:
        return differing(export(learner.policy, Path(scratch) / "weights", version="again"), made)


def learner_before(stored: StoredBatch, run: Path) -> Learner:
    """The learner as it was before the step of a batch. Raises FileNotFoundError as :func:`step_again` does."""
    from trainer.adapters import Lora
    from trainer.grpo import Learner, Settings  # torch and TRL
    from trainer.policy import load_policy

    found = dict(stored.batch.query["settings"])
    lora = None if found.get("lora") is None else Lora(**found.pop("lora"))
    settings = Settings(**{**found, "lora": lora})
    before = Path(stored.batch.query["trained_from"])
    # Otherwise it was the run's first step: fresh moments, and adapters that the seed gives again.
    follows = before.parent == Path(str(stored.batch.checkpoint)).parent
    if lora is None:
        policy = load_policy(_kept(before, "config.json"))
    else:
        # The export before the step has the adapter merged in, and rounded: the step began from the two apart.
        policy = load_policy(_kept(Path(stored.batch.query["model"]), "config.json"))
        if follows:
            policy.adapt(lora, _kept(run / "adapter" / before.name, "adapter_config.json"))
    learner = Learner(policy, settings)
    if follows:
        learner.load_optimizer(_kept(run / "optimizer" / f"{before.name}.pt"))
    return learner


def _kept(path: Path, has: str = "") -> Path:
    """`path`, or FileNotFoundError where it (or the file that it `has`) is no more."""
    if not (path / has).is_file():
        raise FileNotFoundError(f"{path} is gone: a run keeps what its last steps need, and no more")
    return path


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
