"""Stored training batches, read back."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session as Transaction

from replay.schema import Batch, BatchRow
from replay.store import Store


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch and its rows, in order; those with `info["skipped"]` were looked at and not trained."""

    batch: Batch
    rows: tuple[BatchRow, ...]


def load_batch(store: Store, batch_id: int) -> StoredBatch:
    """The batch of that id. Raises LookupError, which tells the ids there are."""
    with Transaction(store.engine, expire_on_commit=False) as transaction:
        batch = transaction.get(Batch, batch_id)
        if batch is None:
            last = transaction.scalar(select(Batch.id).order_by(Batch.id.desc()).limit(1))
            known = "there are none yet" if last is None else f"the last is {last}"
            raise LookupError(f"no batch {batch_id}; {known}")
        query = select(BatchRow).where(BatchRow.batch_id == batch_id).order_by(BatchRow.position)
        return StoredBatch(batch, tuple(transaction.scalars(query)))


def batch_of(store: Store, checkpoint: str, created_at: float) -> int | None:
    """The id of the batch that made `checkpoint` then; None when it was never recorded."""
    query = select(Batch.id).where(Batch.checkpoint == checkpoint, Batch.created_at == created_at)
    with Transaction(store.engine) as transaction:
        return transaction.scalar(query)
