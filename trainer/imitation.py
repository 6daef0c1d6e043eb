"""Which stored sessions are worth imitating, and their tokens as supervised examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.reader import Reader
from replay.schema import Session
from trainer.selection import turn_tokens
from trainer.sequences import rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """Which sessions are imitated: done, with a reward above `above`.

    `per_task` keeps the first few of each task and harness, in the order they were run. `prefix` is that of their
    names (a run's, with its dot); `harnesses` keeps those of these.
    """

    above: float = 0.0
    per_task: int | None = None
    prefix: str | None = None
    harnesses: tuple[str, ...] = ()
    purposes: tuple[str, ...] = ("main",)
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A sequence of T tokens: `ids` int32 [T], and `mask` bool [T], true where the loss is taken."""

    session: int
    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]

    def columns(self) -> dict[str, list[int]]:
        """`input_ids` and `labels` (-100 off the mask), as TRL's SFTTrainer takes them."""
        return {"input_ids": self.ids.tolist(), "labels": np.where(self.mask, self.ids, -100).tolist()}


@dataclass(slots=True)
class Examples:
    """Examples, and what was left out: sampled tokens by reason."""

    examples: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def tokens(self) -> int:
        """Tokens the loss is taken on."""
        return sum(int(example.mask.sum()) for example in self.examples)


def demonstrations(reader: Reader, choice: Demonstrations) -> list[Session]:
    """The chosen sessions, oldest first."""
    found: list[Session] = []
    seen: Counter[tuple[Any, ...]] = Counter()
    for session in reversed(reader.sessions(status="done", prefix=choice.prefix)):
        if session.reward is None or session.reward <= choice.above:
            continue
        if choice.harnesses and session.harness not in choice.harnesses:
            continue
        seen[session.task, session.harness] += 1
        if choice.per_task is None or session.task is None or seen[session.task, session.harness] <= choice.per_task:
            found.append(session)
    return found


def exact_examples(reader: Reader, sessions: Iterable[Session], choice: Demonstrations) -> Examples:
    """The very tokens that were sampled: for a student with the tokenizer and template of the model that sampled."""
    result = Examples()
    for session in sessions:
        kept = rows_of(
            turn_tokens(reader, session), purposes=choice.purposes, max_tokens=choice.max_tokens, imitate=True
        )
        result.left_out.update(kept.left_out)
        result.examples += [Example(session=row.session, ids=row.ids, mask=row.mask) for row in kept.rows]
    return result


def template_hashes(reader: Reader, sessions: Sequence[Session]) -> set[str]:
    """The tokenizers and templates (see `Turn.template_hash`) that the turns of these sessions were sampled with."""
    return {
        turn.template_hash for session in sessions for turn in reader.turns(session) if turn.template_hash is not None
    }
