"""A stored turn in the place of vLLM: the same ids and logprobs, at once or at the pace they once came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from addons.completions import Sampled
from addons.engine import EngineFacts
from addons.errors import EngineRefused
from replay.schema import Turn
from replay.versions import spans_of

Cadence = Literal["fast", "recorded"]
_TICK = 0.02
"""Seconds between two pieces at the recorded pace: nobody sees shorter ones, and each costs a wake-up."""


@dataclass(frozen=True, slots=True)
class StoredReply:
    """What a turn sampled, in the form of :class:`addons.engine.Engine`. `turn` has its tokens loaded.

    Of its times the record has that of the first token and that of the end; at the `recorded` pace the tokens between
    come evenly.
    """

    turn: Turn
    number: int
    """The turn's place in its session, from 1."""
    call_ids: tuple[str, ...]
    """Of the reply's tool calls."""
    cadence: Cadence = "fast"

    async def sample(
        self, facts: EngineFacts, prompt: list[int], params: dict[str, Any], *, stream: bool, shown: object = None
    ) -> AsyncGenerator[Sampled]:
        """The stored completion, in pieces.

        Raises:
            EngineRefused: where the stored turn ended in an error, and after what was sampled of one that was aborted.
        """
        turn = self.turn
        ids, logprobs = turn.sampled or [], turn.logprobs or []
        waits = self._waits(len(ids))
        cached = int((turn.usage or {}).get("cached") or 0)
        size = max(-(-len(ids) // len(waits)), 1)
        finish = None if turn.status != "complete" else "length" if turn.finish == "length" else "stop"
        for index, wait in enumerate(waits):
            if wait:
                await asyncio.sleep(wait)
            part = slice(index * size, (index + 1) * size)
            last = index == len(waits) - 1
            versions = spans_of(turn) if last and turn.weight_versions is not None else ()
            yield Sampled(
                tuple(ids[part]), tuple(logprobs[part]), finish if last else None, None, cached, versions=versions
            )
        if turn.status == "failed":
            error = turn.error or {}
            raise EngineRefused(int(error.get("status") or 500), str(error.get("message") or "the stored call failed"))
        if finish is None:
            raise EngineRefused(400, f"turn {self.number} is {turn.status} in the record: it has no more than this")

    async def weight_version(self, facts: EngineFacts) -> str | None:
        """The version of the weights that were loaded when the turn ended."""
        return self.turn.weight_version_end

    def ids(self, fresh: Callable[[], str]) -> Callable[[], str]:
        """Ids for the reply's tool calls: the stored ones, so that the harness's next request is the stored one too."""

        def all_ids() -> Iterator[str]:
            yield from self.call_ids
            while True:
                yield fresh()

        endless = all_ids()
        return lambda: next(endless)

    def _waits(self, tokens: int) -> list[float]:
        """Seconds to wait before each piece."""
        turn = self.turn
        if self.cadence == "fast" or turn.first_token_at is None or turn.done_at is None or tokens < 1:
            return [0.0]
        first = max(turn.first_token_at - turn.received_at, 0.0)
        rest = max(turn.done_at - turn.first_token_at, 0.0)
        count = max(min(tokens, int(rest / _TICK) + 1), 1)
        return [first] + [rest / (count - 1)] * (count - 1) if count > 1 else [first + rest]
