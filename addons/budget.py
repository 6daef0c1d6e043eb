"""What one session may still use. Whoever opened the session set it; the proxy holds the harness to it.

A session's metadata may carry `{"budget": {"turns": 30, "tokens": 20000}}`: model calls, and sampled tokens of all of
them together. A call beyond it gets the error of an empty account, which harnesses do not try again.

Tokens count as they are sampled, so that calls in parallel draw on one budget: a call may sample what is left when it
begins, and where others used that up meanwhile, it ends there like any reply that met its `max_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from addons.completions import Sampled
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
        if self.max_tokens is None:
            return None
        if self.tokens >= self.max_tokens:
            raise BudgetSpent(self.tokens, self.max_tokens, "tokens")
        return self.max_tokens - self.tokens

    def cut(self, piece: Sampled, begun: bool) -> Sampled:
        """`piece` itself where the budget outlasts it, or as much of it as is left, with finish `length`.

        Raises:
            BudgetSpent: nothing is left for a call that has not `begun`, that is, has no token yet.
        """
        if self.max_tokens is None:
            return piece
        left = max(self.max_tokens - self.tokens, 0)
        if len(piece.ids) < left or (len(piece.ids) == left and piece.finish is not None):
            return piece
        if left == 0 and not begun:
            raise BudgetSpent(self.tokens, self.max_tokens, "tokens")
        return replace(
            piece, ids=piece.ids[:left], logprobs=piece.logprobs[:left], likeliest=piece.likeliest[:left],
            finish="length", stop_reason=None,
        )  # fmt: skip
