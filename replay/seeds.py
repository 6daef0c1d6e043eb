"""Sampling that comes out the same again: a session's seed, set by whoever opened it, and from it one for each call.

A session's metadata may carry `{"seed": 17}`. vLLM then draws the tokens of each of its calls from a generator of the
call's own, whatever else it samples at the time. What a harness asks for itself goes first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any


def seed_of(metadata: Mapping[str, Any] | None) -> int | None:
    """The seed in a session's metadata, None where there is none."""
    seed = (metadata or {}).get("seed")
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else None


def derived(*parts: int | str) -> int:
    """A seed, 0 to 2**63 - 1, that `parts` determine: those that differ in any of them share nothing."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
