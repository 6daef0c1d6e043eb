from __future__ import annotations

from typing import Any

import pytest

from addons.conversation import Sampling
from addons.errors import ContextLengthExceeded
from addons.sampling import FULL, Plan, plan


def planned(asked: Sampling = Sampling(), **changes: Any) -> Plan:  # noqa: B008
    settings: dict[str, Any] = {
        "policy": "asked", "prompt_tokens": 100, "window": 1000, "output_cap": None, "stop_ids": (2, 5),
        "constraint": None, **changes,
    }  # fmt: skip
    return plan(asked, **settings)


def test_nothing_asked_is_the_whole_distribution_said_in_full() -> None:
    got = planned()
    assert got.params == {**FULL, "max_tokens": 900, "stop_token_ids": [2, 5]}
    assert (got.overridden, got.untrainable) == ((), None)


@pytest.mark.parametrize(
    ("asked", "cap", "limit"),
    [(None, None, 900), (32000, None, 900), (50, None, 50), (50, 20, 20), (10, 20, 10)],
)
def test_the_output_limit_is_clamped(asked: int | None, cap: int | None, limit: int) -> None:
    assert planned(Sampling(max_tokens=asked), output_cap=cap).params["max_tokens"] == limit


def test_a_prompt_that_fills_the_window_is_the_overflow_error() -> None:
    assert planned(prompt_tokens=999).params["max_tokens"] == 1
    with pytest.raises(ContextLengthExceeded, match=r"maximum context length is 1000 tokens.*1000 tokens"):
        planned(prompt_tokens=1000)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Sampling(temperature=0.7), None),
        (Sampling(temperature=0), "temperature=0"),
        (Sampling(top_p=0.9), "top_p=0.9"),
        (Sampling(top_k=64), "top_k=64"),
        (Sampling(presence_penalty=1), "presence_penalty=1"),
        (Sampling(logit_bias={"5": 1}), "logit_bias"),
    ],
)
def test_what_the_trainer_cannot_compute_again_is_untrainable(asked: Sampling, reason: str | None) -> None:
    got = planned(asked)
    assert got.untrainable == (None if reason is None else f"sampling distribution altered: {reason}")
    full = planned(asked, policy="full")
    assert full.untrainable is None
    assert {name: full.params[name] for name in FULL} == FULL
    assert set(full.overridden) == set(asked.asked())


def test_a_constraint_is_sent_and_marks_the_turn() -> None:
    got = planned(constraint={"json": {}})
    assert got.params["structured_outputs"] == {"json": {}}
    assert got.untrainable == "constrained decoding"


def test_constrained_turns_can_be_trained_on_by_choice() -> None:
    """The record still says that the turn was constrained: what was sent is kept."""
    got = planned(constraint={"json": {}}, train_constrained=True)
    assert got.params["structured_outputs"] == {"json": {}}
    assert got.untrainable is None
    altered = planned(Sampling(top_p=0.5), constraint={"json": {}}, train_constrained=True)
    assert altered.untrainable == "sampling distribution altered: top_p=0.5"


def test_the_likeliest_tokens_are_reported_without_a_change_of_the_distribution() -> None:
    got = planned(top_logprobs=5)
    assert got.params["logprobs"] == 5
    assert got.untrainable is None
