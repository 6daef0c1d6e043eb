"""What one session may still use. Whoever opened the session set it; the proxy holds the harness to it.

A session's metadata may carry `{"budget": {"turns": 30, "tokens": 20000}}`: model calls, and sampled tokens of all of
them together. A call beyond it gets the error of an empty account, which harnesses do not try again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addons.errors import CallError


class BudgetSpent(CallError):
    """The session has used all that it was given."""

    status = 402
    kind = "invalid_request"

    def __init__(self, used: int, limit: int, what: str) -> None:
        super().__init__(
            f"You exceeded your current quota: {used} of {limit} {what} of this session are used.",
            code="insufficient_quota",
        )


@dataclass(slots=True)
class Budget:
    """Limits of one session (None: none), and what was used of them."""

    max_turns: int | None = None
    max_tokens: int | None = None
    turns: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, metadata: Mapping[str, Any] | None) -> Budget:
        """The budget in a session's metadata; numbers that are none are no limits."""
        given = (metadata or {}).get("budget")
        limits = given if isinstance(given, dict) else {}
        turns, tokens = (limits.get(name) for name in ("turns", "tokens"))
        return cls(turns if isinstance(turns, int) else None, tokens if isinstance(tokens, int) else None)

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self.max_turns is not None or self.max_tokens is not None

    def left(self) -> int | None:
        """The tokens that a call which is about to begin may sample, None for as many as it likes.

        Raises:
            BudgetSpent: there is nothing left.
        """
        if self.max_turns is not None and self.turns >= self.max_turns:
            raise BudgetSpent(self.turns, self.max_turns, "model calls")
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            raise BudgetSpent(self.tokens, self.max_tokens, "tokens")
        return None if self.max_tokens is None else self.max_tokens - self.tokens
