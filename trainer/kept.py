"""What training on stored sessions leaves behind: weights that can be served, and a row of the record about them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replay.records import NewBatch
from replay.store import Store
from replay.writer import Recorder
from trainer.export import export
from trainer.policy import Policy


def keep(
    policy: Policy,
    weights: Path,
    store: Store,
    *,
    version: str,
    trained_from: str,
    query: Mapping[str, Any],
    seed: int,
    stats: Mapping[str, Any],
) -> Path:
    """Export `policy` to `weights` as `version`, and record how it came about; where it was exported to.

    `trained_from` names the weights that the training began with, `query` what was trained on, its method first. The
    batch has no rows: sessions that were imitated or compared are not used up, GRPO may still train on their groups.
    """
    exported = export(policy, weights, version=version)
    batch = NewBatch(
        created_at=time.time(),
        query=dict(query),
        seed=seed,
        weight_version=trained_from,
        rows=[],
        checkpoint=str(exported),
        stats=dict(stats),
    )
    with Recorder(store) as recorder:
        recorder.record_batch(batch).result()
    return exported
