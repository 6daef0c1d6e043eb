from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.sequences import distorted
from replay.versions import VersionSpan
from trainer.sequences import TurnTokens, not_trained, rows_of


def turn(
    id: int,
    parent: int | None = None,
    *,
    suffix: int = 3,
    sampled: int = 2,
    status: str = "complete",
    purpose: str = "main",
    untrainable: str | None = None,
    sampling: dict[str, Any] | None = None,
    versions: tuple[VersionSpan, ...] | None = None,
) -> TurnTokens:
    """A turn whose ids tell where they are from: 1000 * turn + position, sampled ones negative logprob -id / 1e6."""
    prompt = np.arange(suffix, dtype=np.int32) + 1000 * id
    reply = np.arange(sampled, dtype=np.int32) + 1000 * id + 500
    return TurnTokens(
        id=id,
        session=1,
        parent=parent,
        purpose=purpose,
        status=status,
        untrainable=untrainable,
        suffix=prompt,
        sampled=reply,
        logprobs=(-reply / 1e6).astype(np.float32),
        sampling={"temperature": 1.0} if sampling is None else sampling,
        versions=(VersionSpan(str(id), 0, sampled),) if versions is None else versions,
    )


def full_ids(turns: list[TurnTokens], last: int) -> list[int]:
    """Prompt and sampled ids of turn `last`, the way the record defines them."""
    by_id = {t.id: t for t in turns}
    path = [by_id[last]]
    while path[-1].parent is not None:
        path.append(by_id[path[-1].parent])
    return [int(i) for t in reversed(path) for i in (*t.suffix, *t.sampled)]


def test_an_appending_session_is_one_row() -> None:
    turns = [turn(1), turn(2, 1), turn(3, 2)]
    [row] = rows_of(turns).rows
    assert row.ids.tolist() == full_ids(turns, 3)
    assert row.turns == (1, 2, 3)
    assert row.trained == 6
    assert row.ids[row.mask].tolist() == [1500, 1501, 2500, 2501, 3500, 3501]
    assert np.allclose(row.logprobs[row.mask], -row.ids[row.mask] / 1e6)
    assert not row.logprobs[~row.mask].any()
    assert [(s.turn, s.weight_version) for s in row.spans] == [(1, "1"), (2, "2"), (3, "3")]


def test_a_turn_that_a_push_came_into_has_a_span_for_each_version() -> None:
    pushed = (VersionSpan("1", 0, 1), VersionSpan("2", 1, 4), VersionSpan("3", 4, 5))
    turns = [turn(1, sampled=5, versions=pushed), turn(2, 1, versions=(VersionSpan(None, 0, 2),))]
    [row] = rows_of(turns).rows
    assert [(s.turn, s.start, s.end, s.weight_version) for s in row.spans] == [
        (1, 3, 4, "1"), (1, 4, 7, "2"), (1, 7, 8, "3"), (2, 11, 13, None),
    ]  # fmt: skip
    assert row.mask.nonzero()[0].tolist() == [3, 4, 5, 6, 7, 11, 12]
    assert np.allclose(row.logprobs[row.mask], -row.ids[row.mask] / 1e6)


def test_a_long_row_is_not_cut_where_a_push_came() -> None:
    pushed = (VersionSpan("1", 0, 1), VersionSpan("2", 1, 4))
    kept = rows_of([turn(1), turn(2, 1, sampled=4, versions=pushed)], max_tokens=10)
    assert [row.turns for row in kept.rows] == [(1,)]
    assert kept.left_out == {"row longer than 10 tokens": 4}


def test_a_fork_trains_the_shared_prefix_once() -> None:
    turns = [turn(1), turn(2, 1), turn(3, 1)]
    first, second = rows_of(turns).rows
    assert (first.turns, second.turns) == ((1, 2), (1, 3))
    assert (first.trained, second.trained) == (4, 2)
    assert second.ids.tolist() == full_ids(turns, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "aborted"},
        {"status": "failed"},
        {"untrainable": "ids mismatch"},
        {"purpose": "title"},
        {"sampling": {"top_p": 0.9}},
    ],
)
def test_untrained_turns_are_context_of_their_children(change: dict[str, Any]) -> None:
    turns = [turn(1), turn(2, 1, **change), turn(3, 2)]
    kept = rows_of(turns)
    [row] = kept.rows
    assert row.ids.tolist() == full_ids(turns, 3)
    assert row.ids[row.mask].tolist() == [1500, 1501, 3500, 3501]
    assert sum(kept.left_out.values()) == 2


def test_an_untrained_leaf_is_cut_off_and_makes_no_row_of_its_own() -> None:
    turns = [turn(1), turn(2, 1), turn(3, 1, status="aborted")]
    [row] = rows_of(turns).rows
    assert row.turns == (1, 2)
    assert rows_of([turn(1, status="failed")]).rows == []


def test_a_failed_call_before_its_retry_is_no_branch() -> None:
    [row] = rows_of([turn(1), turn(2, 1, status="failed", sampled=0), turn(3, 1), turn(4, 3, purpose="title")]).rows
    assert (row.turns, row.trained) == ((1, 3), 4)


def test_other_purposes_can_be_asked_for() -> None:
    turns = [turn(1), turn(2, purpose="subagent")]
    assert [row.turns for row in rows_of(turns, purposes=("subagent",)).rows] == [(2,)]
    assert len(rows_of(turns, purposes=("main", "subagent")).rows) == 2


def test_long_rows_are_cut_after_a_turn() -> None:
    turns = [turn(1), turn(2, 1), turn(3, 2)]  # 5 tokens each
    kept = rows_of(turns, max_tokens=14)
    [row] = kept.rows
    assert row.turns == (1, 2)
    assert len(row.ids) == 10
    assert kept.left_out == {"row longer than 14 tokens": 2}
    assert rows_of(turns, max_tokens=4).rows == []


def test_a_missing_parent_is_an_error() -> None:
    with pytest.raises(ValueError, match="turn 9"):
        rows_of([turn(10, 9)])


@pytest.mark.parametrize(
    ("sampling", "reason"),
    [
        ({}, None),
        ({"temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": 0.0}, None),
        ({"top_k": -1, "logit_bias": {}}, None),
        ({"top_p": 0.95}, "sampled with top_p"),
        ({"top_k": 20}, "sampled with top_k"),
        ({"min_p": 0.05}, "sampled with min_p"),
        ({"repetition_penalty": 1.1}, "sampled with repetition_penalty"),
        ({"logit_bias": {"5": -100}}, "sampled with logit_bias"),
        ({"structured_outputs": {"json": {}}}, "constrained decoding"),
        ({"temperature": 0}, "sampled greedily"),
    ],
)
def test_distorted_sampling(sampling: dict[str, Any], reason: str | None) -> None:
    assert distorted(sampling) == reason


@st.composite
def trees(draw: st.DrawFn) -> list[TurnTokens]:
    turns: list[TurnTokens] = []
    for id in range(1, draw(st.integers(1, 14)) + 1):
        parent = draw(st.none() | st.sampled_from([t.id for t in turns])) if turns else None
        turns.append(
            turn(
                id,
                parent,
                suffix=draw(st.integers(1, 4)),
                sampled=draw(st.integers(0, 4)),
                status=draw(st.sampled_from(["complete", "complete", "complete", "aborted", "failed", "open"])),
                purpose=draw(st.sampled_from(["main", "main", "main", "title"])),
                untrainable=draw(st.sampled_from([None, None, None, "constrained"])),
            )
        )
    return turns


@given(trees())
def test_every_sampled_token_is_trained_exactly_once(turns: list[TurnTokens]) -> None:
    kept = rows_of(turns)
    wanted = sorted(int(i) for t in turns if not_trained(t, ("main",)) is None for i in t.sampled)
    trained = sorted(int(i) for row in kept.rows for i in row.ids[row.mask])
    assert trained == wanted  # ids are unique, so this counts each token
    assert sum(kept.left_out.values()) == sum(len(t.sampled) for t in turns) - len(wanted)
    for row in kept.rows:
        assert row.ids.tolist() == full_ids(turns, row.turns[-1])
        assert np.array_equal(row.logprobs, np.where(row.mask, -row.ids / 1e6, 0).astype(np.float32))
        assert row.mask[-1]
        assert row.trained == sum(span.end - span.start for span in row.spans)


@given(trees(), st.integers(1, 40))
def test_cut_rows_are_prefixes(turns: list[TurnTokens], limit: int) -> None:
    whole, cut = rows_of(turns), rows_of(turns, max_tokens=limit)
    assert all(len(row.ids) <= limit for row in cut.rows)
    trained = sum(row.trained for row in cut.rows)
    lost = cut.left_out[f"row longer than {limit} tokens"]
    assert trained + lost == sum(row.trained for row in whole.rows)
