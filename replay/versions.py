"""Which weights sampled which tokens of a turn.

A push does not end the calls in flight: they go on under the new weights, so one turn may have tokens of several
versions. vLLM tells where one ends and the next begins; the record keeps that, and keeps it apart from not knowing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replay.schema import Turn


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """The sampled tokens `start:end` of a turn, and the version of the weights that sampled them; None: not known."""

    version: str | None
    start: int
    end: int


def spans_of(turn: Turn) -> tuple[VersionSpan, ...]:
    """The spans of a turn's sampled tokens, each token in one, in order; none where nothing was sampled.

    Where the server told only the version before the first token and the one after the last, and they differ or one is
    missing, then it is not known which token is whose: one span without a version.
    """
    if turn.n_sampled == 0:
        return ()
    if turn.weight_versions is not None:
        return tuple(VersionSpan(one["version"], one["start"], one["end"]) for one in turn.weight_versions)
    version = turn.weight_version if turn.weight_version == turn.weight_version_end else None
    return (VersionSpan(version, 0, turn.n_sampled),)


def clipped(spans: Sequence[VersionSpan], length: int) -> tuple[VersionSpan, ...]:
    """The spans of the first `length` tokens."""
    return tuple(VersionSpan(one.version, one.start, min(one.end, length)) for one in spans if one.start < length)


def check(spans: Sequence[VersionSpan], length: int) -> None:
    """Raise ValueError unless each of `length` tokens is in one span, in order, and has a version."""
    ends = [0, *(span.end for span in spans)]
    whole = ends[-1] == length and all(span.start == end for span, end in zip(spans, ends[:-1], strict=True))
    if not whole or any(span.end <= span.start or not span.version for span in spans):
        raise ValueError(f"weight versions of {length} sampled tokens do not stand in line: {list(spans)}")


def told(turn: Turn) -> str:
    """For a line of text: `3`, or `3→4@120` (from token 120 on), or `3→4@?`; empty where no version is known."""
    if turn.weight_versions is not None:
        first, *later = spans_of(turn)
        return str(first.version) + "".join(f"→{span.version}@{span.start}" for span in later)
    start, end = turn.weight_version, turn.weight_version_end
    return (start or "") + (f"→{end}@?" if start and end and end != start else "")
