"""Which sampled tokens of a session are trained, and in how many sequences: the rule, for the trainer and for reports.

A session is a tree of turns, and each path through it is one token sequence: a harness that only appends makes one
sequence, however many turns it took. Where the history was rewritten the tree forks; a sampled token that several
paths share is trained in the first of them only. Everything that was not sampled, or must not be trained, is context.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_PURPOSES = ("main",)
_ABOUT_SAMPLING = ("constrained", "missing logprobs")
"""Beginnings of what `Turn.untrainable` says of the distribution, and not of the tokens."""


@dataclass(frozen=True, slots=True)
class Path:
    """One training sequence. `turns` are turn ids from the root; the last of them is trained."""

    turns: tuple[int, ...]
    trained: frozenset[int]
    """Those of `turns` whose sampled tokens this sequence trains; each turn is trained by one sequence."""


def not_trained(
    *,
    status: str,
    untrainable: str | None,
    sampled: int,
    logprobs: int,
    purpose: str,
    sampling: Mapping[str, Any],
    purposes: Collection[str] = DEFAULT_PURPOSES,
    imitate: bool = False,
) -> str | None:
    """Why a turn's sampled tokens must not be trained; None when they may.

    `sampled` and `logprobs` count its ids and their logprobs; `sampling` are the parameters that vLLM was sent. To
    `imitate` tokens (supervised learning) it does not matter from which distribution they were sampled.
    """
    if status != "complete":
        return f"turn {status}"
    if untrainable is not None and not (imitate and untrainable.startswith(_ABOUT_SAMPLING)):
        return f"untrainable: {untrainable}"
    if logprobs != sampled and not imitate:
        return "no logprobs"
    if purpose not in purposes:
        return f"purpose {purpose}"
    return None if imitate else distorted(sampling)


def distorted(sampling: Mapping[str, Any]) -> str | None:
    """Which of the sampling parameters makes recorded logprobs differ from the policy's own; None when none does.

    Only the temperature is part of what is trained. Cut, shifted and greedy distributions are not.
    """
    neutral: dict[str, tuple[Any, ...]] = {
        "top_p": (1, 1.0, None),
        "top_k": (0, -1, None),
        "min_p": (0, 0.0, None),
        "presence_penalty": (0, 0.0, None),
        "frequency_penalty": (0, 0.0, None),
        "repetition_penalty": (1, 1.0, None),
        "logit_bias": (None, {}),
        "min_tokens": (0, None),
    }
    for name, harmless in neutral.items():
        if sampling.get(name) not in harmless:
            return f"sampled with {name}"
    if sampling.get("structured_outputs") is not None or sampling.get("bad_words"):
        return "constrained decoding"
    if temperature_of(sampling) <= 0:
        return "sampled greedily"
    return None


def temperature_of(sampling: Mapping[str, Any]) -> float:
    """The temperature vLLM used: the one sent, or 1."""
    value = sampling.get("temperature")
    return 1.0 if value is None else float(value)


def paths(parents: Mapping[int, int | None], trainable: Collection[int]) -> list[Path]:
    """The training sequences of a forest of turns, `parents` by turn id, in the order of their last turns.

    `trainable` are the turns that may be trained and sampled something; each of them is in one path's `trained`.
    Raises ValueError for a parent that is not among the turns.
    """
    for turn, parent in parents.items():
        if parent is not None and parent not in parents:
            raise ValueError(f"turn {turn} continues turn {parent}, which is not among the turns given")
    # What follows the last trained token teaches nothing, and is no branch: a call that failed before its retry, say.
    lead_on: set[int] = set()
    for turn in trainable:
        before = parents[turn]
        while before is not None and before not in lead_on:
            lead_on.add(before)
            before = parents[before]
    found: list[Path] = []
    owned: set[int] = set()
    for last in sorted(set(trainable) - lead_on):
        path = _ancestry(parents, last)
        mine = {turn for turn in path if turn in trainable and turn not in owned}
        owned |= mine
        found.append(Path(tuple(path), frozenset(mine)))
    return found


def _ancestry(parents: Mapping[int, int | None], leaf: int) -> list[int]:
    path = [leaf]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return path[::-1]
