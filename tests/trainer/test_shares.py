"""Rows are dealt out to ranks: all of them, each once, and as many micro-batches for every rank."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.test_grpo import row
from trainer.batches import Credited
from trainer.shares import idle, share

pytestmark = pytest.mark.slow  # TRL takes seconds to import

LENGTHS = [34, 9, 60, 31, 60, 12, 7]
ROWS = [Credited(row(i, [(length - 3, length)], length), 1.0) for i, length in enumerate(LENGTHS)]


def rows_in(batches: list[dict[str, torch.Tensor]]) -> list[int]:
    """The lengths of the rows in `batches` that have a trained token."""
    found = []
    for batch in batches:
        real = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1).sum(1)
        found += real[batch["tool_mask"].any(1)].tolist()
    return found


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_row_is_dealt_once_and_every_rank_has_as_many_micro_batches(count: int, ranks: int) -> None:
    rows = ROWS[:count]
    shares = [share(rows, token_budget=64, pad_id=0, rank=rank, ranks=ranks) for rank in range(ranks)]
    assert len({len(batches) for batches in shares}) == 1
    assert sorted(length for batches in shares for length in rows_in(batches)) == sorted(LENGTHS[:count])
    assert {float(batch["num_items_in_batch"]) for batches in shares for batch in batches} == {3.0 * count}


def test_one_micro_batch_that_all_rows_fit_into_is_split_for_the_ranks() -> None:
    rows = [Credited(row(i, [(7, 10)], 10), 1.0) for i in range(8)]
    assert len(share(rows, token_budget=8192, pad_id=0)) == 1
    shares = [share(rows, token_budget=8192, pad_id=0, rank=rank, ranks=4) for rank in range(4)]
    assert [rows_in(batches) for batches in shares] == [[10, 10]] * 4


def test_an_idle_micro_batch_trains_nothing() -> None:
    batch = idle(ROWS[0], pad_id=0, trained_in_step=10)
    assert batch["prompt_ids"].shape == batch["completion_ids"].shape == (1, 1)
    assert not batch["tool_mask"].any()
    assert batch["advantages"].tolist() == [0.0]
