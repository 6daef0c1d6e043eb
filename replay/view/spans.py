"""Tokens for a page: text by text, with how likely each was and whether it is trained."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from replay.tokens import decode

LEAST = (0.01, 0.1, 0.5, 0.9)
"""Probabilities at which the colour changes; `p0` is below the first of them, `p4` above the last."""
_STEPS = [math.log(least) for least in LEAST]


@dataclass(frozen=True, slots=True)
class Token:
    """A sampled token. `level` is its colour, p0 to p4; None of both without a logprob."""

    text: str
    id: int
    logprob: float | None
    level: str | None

    @property
    def about(self) -> str:
        """What a pointer over it is told."""
        if self.logprob is None:
            return f"{self.id}, no logprob"
        return f"{self.id}, logprob {self.logprob:.4f}, p {math.exp(self.logprob):.4f}"


@dataclass(frozen=True, slots=True)
class Piece:
    """A turn's part of a sequence: what was new in its prompt, which is context, and what was sampled after it."""

    turn: int
    purpose: str
    context: str
    context_tokens: int
    sampled: tuple[Token, ...]
    not_trained: str | None
    """Why the loss leaves the sampled tokens out; None where it counts them."""


def piece(
    new: Sequence[int],
    sampled: Sequence[int],
    logprobs: Sequence[float],
    tokenizer: Tokenizer | None,
    *,
    turn: int,
    purpose: str,
    not_trained: str | None,
) -> Piece:
    """The `new` ids of a prompt and the `sampled` ones as text; as numbers where there is no tokenizer."""
    ids = [*new, *sampled]
    texts = [f"{token} " for token in ids] if tokenizer is None else decode(ids, tokenizer)
    tokens = []
    for at, (token, text) in enumerate(zip(sampled, texts[len(new) :], strict=True)):
        logprob = logprobs[at] if at < len(logprobs) else None
        level = None if logprob is None or math.isnan(logprob) else f"p{bisect.bisect_right(_STEPS, logprob)}"
        tokens.append(Token(text, token, logprob, level))
    return Piece(turn, purpose, "".join(texts[: len(new)]), len(new), tuple(tokens), not_trained)
