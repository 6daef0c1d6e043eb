"""Seeds that follow from others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replay.seeds import derived, seed_of


def test_what_is_a_seed() -> None:
    assert seed_of({"seed": 17}) == 17
    assert seed_of({"seed": 0}) == 0
    for none in (None, {}, {"seed": None}, {"seed": "17"}, {"seed": True}, {"seed": 1.5}):
        assert seed_of(none) is None


@given(
    st.lists(
        st.one_of(st.integers(), st.text(st.characters(codec="utf-8", exclude_characters="\0"))), min_size=1, max_size=4
    )
)
def test_a_derived_seed_is_one_that_torch_and_vllm_take(parts: list[int | str]) -> None:
    assert 0 <= derived(*parts) < 2**63
    assert derived(*parts) == derived(*parts)


def test_parts_are_told_apart() -> None:
    made = [derived(1, "a"), derived(1, "b"), derived(2, "a"), derived(1, "a", 0), derived("1a"), derived("a", 1)]
    assert len(set(made)) == len(made)
    assert derived(0, "tiny-0.copy.pi.0") == 3505878208835836302, "the same on every machine and in every version"
