from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.advantages import Scored, credit


def group(*rewards: float | None, start: int = 0) -> list[Scored]:
    return [Scored(session=start + i, reward=reward) for i, reward in enumerate(rewards)]


def test_std_with_one_degree_of_freedom() -> None:
    result = credit([group(1.0, 0.0, 0.0, 0.0)])
    assert result.advantages[0] == pytest.approx(0.75 / (0.5 + 1e-4))
    assert result.advantages[1] == pytest.approx(-0.25 / (0.5 + 1e-4))
    assert result.groups_used == 1


def test_unscored_is_neither_baseline_nor_trained() -> None:
    with_none = credit([group(1.0, 0.0, None)])
    assert 2 not in with_none.advantages
    assert with_none.advantages[0] == credit([group(1.0, 0.0)]).advantages[0]
    assert with_none.sessions_unscored == 1


def test_flat_and_small_groups_are_counted_not_trained() -> None:
    result = credit([group(1.0, 1.0), group(0.0, None, start=10), group(1.0, 0.0, start=20)])
    assert set(result.advantages) == {20, 21}
    assert (result.groups_used, result.groups_flat, result.groups_small) == (1, 1, 1)


def test_scale_none_and_batch() -> None:
    groups = [group(1.0, 0.0), group(4.0, 0.0, start=10)]
    assert credit(groups, "none").advantages[10] == 2.0
    both = credit(groups, "batch").advantages
    assert both[10] / both[0] == pytest.approx(4.0)  # the contrast of the second group is kept


def test_unknown_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="'group'"):
        credit([], "group")  # type: ignore[arg-type]


@given(st.lists(st.lists(st.floats(-10, 10) | st.none(), max_size=6), max_size=5))
def test_a_group_sums_to_zero(rewards: list[list[float | None]]) -> None:
    groups = [group(*line, start=100 * i) for i, line in enumerate(rewards)]
    result = credit(groups)
    assert result.groups_used + result.groups_flat + result.groups_small == len(groups)
    for members in groups:
        total = sum(result.advantages.get(s.session, 0.0) for s in members)
        assert math.isclose(total, 0.0, abs_tol=1e-6)
