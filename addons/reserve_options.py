"""What to answer a harness from, and how: as mitmproxy's options give it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from addons.conversation import Sampling
from addons.reserve_reply import Cadence
from replay import codec
from replay.volatile import Volatile

Then = Literal["stop", "live"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveOptions:
    """What to answer from.

    `session` is the stored session's name; `until` the last of its turns (from 1) that is served, 0 for all; after
    that turn every call is live. `then` says what becomes of a call before that which no stored turn answers.
    `sampling` overrides what live calls ask; `edits` are (old, new) texts, replaced in what live calls say after turn
    `until`.
    """

    session: str
    until: int = 0
    then: Then = "stop"
    cadence: Cadence = "fast"
    sampling: dict[str, Any] = field(default_factory=dict)
    edits: tuple[tuple[str, str], ...] = ()
    ignore: tuple[str, ...] = ()
    """Regular expressions of what no two runs say alike, besides `replay.volatile.DEFAULT`."""


def parse_sampling(text: str) -> dict[str, Any]:
    """Sampling parameters from a JSON object, in vLLM's words. Raises ValueError naming what is none."""
    known = {one.name for one in fields(Sampling)}
    found = _json(text or "{}", "sampling parameters")
    if not isinstance(found, dict) or not found.keys() <= known:
        raise ValueError(f"{text!r} is no JSON object of {', '.join(sorted(known))}")
    return found


def parse_edits(text: str) -> tuple[tuple[str, str], ...]:
    """Edits from a JSON list of [old, new]. Raises ValueError."""
    found = _json(text or "[]", "edits")
    if not isinstance(found, list) or not all(_is_edit(one) for one in found):
        raise ValueError(f"{text!r} is no JSON list of [old, new] texts, old not empty")
    return tuple((old, new) for old, new in found)


def parse_ignore(text: str) -> tuple[str, ...]:
    """Regular expressions from a JSON list. Raises ValueError."""
    found = _json(text or "[]", "what is to be ignored")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"{text!r} is no JSON list of regular expressions")
    return Volatile(tuple(found)).patterns


def _is_edit(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value) and value[0] != ""


def _json(text: str, what: str) -> Any:
    try:
        return codec.loads(text)
    except ValueError as error:
        raise ValueError(f"{what} {text!r} are no JSON: {error}") from error
