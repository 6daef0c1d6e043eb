"""Pairs of sessions on one task, one better than the other: what preference training learns from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from replay.groups import Group
from replay.reader import Reader
from replay.schema import Session
from trainer.imitation import Demonstrations, Example, exact_examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """How sessions of a group are paired: each with those whose reward is lower by `margin` or more.

    At most `per_group` pairs of a group, widest difference first. A session that forked is represented by its sequence
    with the most trained tokens.
    """

    margin: float = 0.5
    per_group: int = 4
    purposes: tuple[str, ...] = ("main",)
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sequences; `margin` is by how much the chosen one's reward is higher."""

    chosen: Example
    rejected: Example
    margin: float


@dataclass(slots=True)
class Pairs:
    """The pairs of some groups, and what was left out: sampled tokens by reason."""

    pairs: list[Pair] = field(default_factory=list)
    groups: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def pairs_of(reader: Reader, groups: Iterable[Group], choice: Pairing) -> Pairs:
    """Pairs of all `groups`; those without a wide enough difference give none."""
    result = Pairs()
    for group in groups:
        scored = [(session.reward, session) for session in group.sessions if session.reward is not None]
        found = [
            (better - worse, chosen, rejected)
            for better, chosen in scored
            for worse, rejected in scored
            if better - worse >= choice.margin
        ]
        found.sort(key=lambda pair: (-pair[0], pair[1].id, pair[2].id))
        examples = _examples(reader, {s.id: s for _, *both in found for s in both}, choice, result.left_out)
        usable = [
            Pair(examples[chosen.id], examples[rejected.id], margin)
            for margin, chosen, rejected in found
            if chosen.id in examples and rejected.id in examples
        ]
        result.pairs += _spread(usable, choice.per_group)
        result.groups += bool(usable)
    return result


def _examples(
    reader: Reader, sessions: dict[int, Session], choice: Pairing, left_out: Counter[str]
) -> dict[int, Example]:
    wanted = Demonstrations(purposes=choice.purposes, max_tokens=choice.max_tokens)
    found: dict[int, Example] = {}
    for session in sessions.values():
        kept = exact_examples(reader, [session], wanted)
        left_out.update(kept.left_out)
        if kept.examples:
            found[session.id] = max(kept.examples, key=lambda example: int(example.mask.sum()))
            left_out["a shorter sequence of a session that forked"] += kept.tokens - int(found[session.id].mask.sum())
    left_out += Counter()  # drops zeros
    return found


def _spread(pairs: list[Pair], count: int) -> list[Pair]:
    """The first `count` of `pairs`, those first that use each session least often."""
    used: Counter[int] = Counter()
    left = list(pairs)
    taken: list[Pair] = []
    while left and len(taken) < count:
        best = min(left, key=lambda pair: (used[pair.chosen.session] + used[pair.rejected.session], -pair.margin))
        left.remove(best)
        taken.append(best)
        used[best.chosen.session] += 1
        used[best.rejected.session] += 1
    return taken
