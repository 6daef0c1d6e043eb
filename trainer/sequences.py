"""Sessions to training rows: the sequences of `replay.sequences`, with their ids, mask and logprobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay import sequences
from replay.versions import VersionSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTokens:
    """What a training row needs of one stored turn.

    `suffix` are the prompt ids that follow the parent's prompt and reply (int32); `sampled` and `logprobs` are as long
    as each other unless `untrainable` says why not. `sampling` are the parameters vLLM was sent.
    """

    id: int
    session: int
    parent: int | None
    purpose: str
    status: str
    untrainable: str | None
    suffix: NDArray[np.int32]
    sampled: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    sampling: Mapping[str, Any]
    versions: tuple[VersionSpan, ...]
    """Which weights sampled which of `sampled`: each of them is in one span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The tokens `start:end` of a row, sampled by `turn` under `weight_version` and `temperature`, and trained.

    A turn that a push came into has a span for each version. None: it is not known which weights sampled them.
    """

    turn: int
    start: int
    end: int
    weight_version: str | None
    temperature: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One training sequence of T tokens.

    `ids` int32 [T]: prompt and sampled tokens interleaved. `mask` bool [T]: true on the sampled tokens this row
    trains. `logprobs` float32 [T]: as recorded when sampled, 0 where `mask` is false. `turns` is the path from the
    root; the last of them is trained, so the row ends with its last sampled token.
    """

    session: int
    turns: tuple[int, ...]
    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    spans: tuple[Span, ...]

    @property
    def trained(self) -> int:
        """How many tokens this row trains."""
        return int(self.mask.sum())


@dataclass(slots=True)
class Kept:
    """The rows of some sessions, and why the sampled tokens of other turns are not trained: reason -> tokens."""

    rows: list[Row] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def not_trained(turn: TurnTokens, purposes: Collection[str], *, imitate: bool = False) -> str | None:
    """Why `turn`'s sampled tokens must not be trained; None when they may."""
    return sequences.not_trained(
        status=turn.status,
        untrainable=turn.untrainable,
        sampled=len(turn.sampled),
        logprobs=len(turn.logprobs),
        purpose=turn.purpose,
        sampling=turn.sampling,
        purposes=purposes,
        imitate=imitate,
    )


def rows_of(
    turns: Iterable[TurnTokens],
    *,
    purposes: Collection[str] = ("main",),
    max_tokens: int | None = None,
    imitate: bool = False,
) -> Kept:
    """The training rows of `turns`, which may belong to several sessions; parents are among them.

    With `imitate` they are examples for supervised learning; logprobs that were not recorded are 0.

    Every sampled token that may be trained is trained once, in the first path that holds it; paths are taken in the
    order of their turns' ids. A row longer than `max_tokens` is cut after its last trained turn that fits, which
    changes nothing for the tokens kept, since each depends on those before it only; the rest is counted.
    """
    known = {turn.id: turn for turn in turns}
    kept = Kept()
    trainable: set[int] = set()
    for turn in known.values():
        reason = not_trained(turn, purposes, imitate=imitate)
        if reason is not None:
            kept.left_out[reason] += len(turn.sampled)
        elif len(turn.sampled):
            trainable.add(turn.id)
    for path in sequences.paths({turn.id: turn.parent for turn in known.values()}, trainable):
        row = row_of([known[turn] for turn in path.turns], path.trained)
        cut = _cut(row, max_tokens)
        if cut is not None:
            kept.rows.append(cut)
        lost = row.trained - (cut.trained if cut is not None else 0)
        if lost:
            kept.left_out[f"row longer than {max_tokens} tokens"] += lost
    return kept


def row_of(path: Sequence[TurnTokens], mine: Collection[int]) -> Row:
    """The row of a path from its root, which trains the turns `mine`."""
    spans: list[Span] = []
    position = 0
    length = sum(len(turn.suffix) + len(turn.sampled) for turn in path)
    mask = np.zeros(length, dtype=np.bool_)
    logprobs = np.zeros(length, dtype=np.float32)
    for turn in path:
        position += len(turn.suffix)
        end = position + len(turn.sampled)
        if turn.id in mine:
            mask[position:end] = True
            if len(turn.logprobs) == len(turn.sampled):
                logprobs[position:end] = turn.logprobs
            spans += [
                Span(
                    turn=turn.id,
                    start=position + one.start,
                    end=position + one.end,
                    weight_version=one.version,
                    temperature=sequences.temperature_of(turn.sampling),
                )
                for one in turn.versions
            ]
        position = end
    return Row(
        session=path[0].session,
        turns=tuple(turn.id for turn in path),
        ids=np.concatenate([part for turn in path for part in (turn.suffix, turn.sampled)]).astype(np.int32),
        mask=mask,
        logprobs=logprobs,
        spans=tuple(spans),
    )


def _cut(row: Row, max_tokens: int | None) -> Row | None:
    """`row` without what lies beyond `max_tokens`; None when no trained turn fits."""
    if max_tokens is None or len(row.ids) <= max_tokens:
        return row
    too_long = {span.turn for span in row.spans if span.end > max_tokens}
    spans = tuple(span for span in row.spans if span.turn not in too_long)
    if not spans:
        return None
    end = spans[-1].end
    return Row(
        session=row.session,
        turns=row.turns[: row.turns.index(spans[-1].turn) + 1],
        ids=row.ids[:end],
        mask=row.mask[:end],
        logprobs=row.logprobs[:end],
        spans=spans,
    )
