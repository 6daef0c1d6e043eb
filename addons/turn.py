"""One model call in flight: what was sampled so far, and how it ends up in the record."""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from dataclasses import dataclass, field
from typing import Any

from addons.backend import Model
from addons.completions import Likeliest, Sampled
from addons.contexts import Context, Contexts
from addons.conversation import Call, Delta, Reply, ToolCallDelta, Usage
from addons.drift import sent
from addons.errors import CallError
from addons.generate import Shown
from addons.neutral import message_json
from addons.placement import Placement
from addons.replies import ReplyParser
from addons.reserve_reply import StoredReply
from addons.sessions import LiveSession
from replay.records import EndStatus, TurnEnd
from replay.versions import VersionSpan, check, clipped

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class LiveTurn:
    """A turn that is open in the store.

    One task samples it; each connection that wants the reply (the call, a retry of it) listens.
    """

    id: int
    reply_id: str
    """The id the reply carries on the wire, whichever connection it goes to."""
    received_at: float
    session: LiveSession
    call: Call
    model: Model
    params: dict[str, Any]
    parser: ReplyParser
    placement: Placement
    thread: str | None
    """The harness's own name of the conversation."""
    untrainable: str | None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    likeliest: list[Likeliest] = field(default_factory=list)
    """As many as `ids` where the harness asked for alternatives; else empty. No part of the record."""
    deltas: list[Delta] = field(default_factory=list)
    """All that was said so far."""
    first_token_at: float | None = None
    cached_tokens: int = 0
    last: Sampled | None = None
    enough: bool = False
    """Nothing more is wanted, though the engine would go on: a stop string, or the one call that was allowed."""
    ending: bool = False
    """Its sampling is over; it is being committed."""
    reply: Reply | None = None
    """Set once the turn is committed."""
    error: CallError | None = None
    task: asyncio.Task[None] | None = None
    dropped: bool = False
    listeners: set[Listener] = field(default_factory=set)
    engine: StoredReply | None = None
    """What answers in vLLM's place, for a call that is re-served."""

    def shown(self) -> Shown | None:
        """The prompt as vLLM is sent it with its images, which may be megabytes; None where it has none."""
        if not self.placement.placed or self.model.images is None:
            return None
        return self.model.images.shown(self.prompt, self.placement.placed, self.call.conversation)

    @property
    def prompt(self) -> list[int]:
        """The whole prompt, token ids."""
        return self.placement.prompt

    @property
    def over(self) -> bool:
        """The row is written for good."""
        return self.reply is not None

    @property
    def versions(self) -> tuple[VersionSpan, ...]:
        """Which weights sampled which of `ids`; empty where that is not known, as when we hung up before the end."""
        told = () if self.last is None else clipped(self.last.versions, len(self.ids))
        try:
            check(told, len(self.ids) if told else 0)
        except ValueError as wrong:  # what was sampled is whole, and must be kept
            logger.warning("turn %d: %s", self.id, wrong)
            return ()
        return told

    @property
    def left_behind(self) -> bool:
        """It was sampled to its end, and every connection that wanted it is gone.

        The same call again is then its retry, also where the harness does not say so.
        """
        return self.ending and not self.listeners

    def drop(self) -> None:
        """Nobody wants the reply: stop sampling. What is already being committed is committed."""
        if self.task is not None and not self.ending:
            # Not at once: a task that is cancelled before its first step would never come to write its end.
            asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self.task is not None and not self.ending and not self.listeners:
            self.dropped = True
            self.task.cancel()

    @property
    def must_stream(self) -> bool:
        """The end may have to be found as tokens come, even for a harness that does not stream."""
        limited = self.session.budget.max_tokens is not None
        return self.call.stream or limited or bool(self.call.sampling.stop) or not self.call.parallel_tool_calls

    def take(self, piece: Sampled) -> None:
        """Keep a piece as sampled, up to where it is enough, and say what it adds to the reply."""
        if piece.ids and self.first_token_at is None:
            self.first_token_at = time.time()
        self.cached_tokens = max(self.cached_tokens, piece.cached_tokens)
        step = 1 if self.must_stream else max(len(piece.ids), 1)
        for start in range(0, len(piece.ids), step):
            self.ids.extend(piece.ids[start : start + step])
            self.logprobs.extend(piece.logprobs[start : start + step])
            self.likeliest.extend(piece.likeliest[start : start + step])
            new = self.parser.feed(piece.ids[start : start + step])
            self.deltas += new
            called = any(isinstance(delta, ToolCallDelta) for delta in new)
            if self.parser.stopped or (called and not self.call.parallel_tool_calls):
                self.enough = True
                break
        if piece.finish is not None:
            self.last = piece
        self.tell()

    def tell(self) -> None:
        """Wake the listeners."""
        for listener in self.listeners:
            listener.wake()

    def conclude(self) -> Reply:
        """Say the last deltas; the finished reply."""
        finish: Any = "abort"
        if self.enough:
            finish = "stop"
        elif self.last is not None:
            finish = self.last.finish
        deltas, parsed = self.parser.finish(finish, self.last.stop_reason if self.last else None)
        self.deltas += deltas
        usage = Usage(len(self.prompt), len(self.ids), self.cached_tokens, parsed.reasoning_tokens)
        asked, used = self.call.sampling.max_tokens, len(self.prompt) + len(self.ids)
        full = parsed.finish == "length" and used >= self.model.facts.window and asked != len(self.ids)
        return Reply(
            parsed.message, parsed.finish, usage, parsed.stop_sequence, parsed.malformed, tuple(self.deltas), full
        )

    def end(
        self, status: EndStatus, reply: Reply, weight_version_end: str | None, error: dict[str, Any] | None = None
    ) -> TurnEnd:
        """The row's second half."""
        untrainable = self.untrainable
        if len(self.logprobs) != len(self.ids):
            untrainable = f"missing logprobs: {len(self.logprobs)} for {len(self.ids)} sampled tokens"
        return TurnEnd(
            status=status,
            sampled=self.ids,
            logprobs=self.logprobs if len(self.logprobs) == len(self.ids) else [],
            finish=reply.finish,
            stop_sequence=reply.stop_sequence,
            usage={"prompt": reply.usage.prompt, "completion": reply.usage.completion,
                   "cached": reply.usage.cached, "reasoning": reply.usage.reasoning},
            reply={**message_json(reply.message), **({"malformed": True} if reply.malformed else {})},
            weight_version_end=weight_version_end,
            weight_versions=self.versions,
            first_token_at=self.first_token_at,
            done_at=time.time(),
            error=error,
            untrainable=untrainable,
            after_digest=self.placement.trail.after(reply.message),
        )  # fmt: skip

    def remember(self, contexts: Contexts, after_digest: str, reply: Reply) -> None:
        """Let later calls continue this turn; the digest is that of its row."""
        placement, trail = self.placement, self.placement.trail
        parent, prefix = placement.parent, trail.continues
        before = None if parent is None else parent.sent
        contexts.remember(
            after_digest,
            Context(
                self.id, self.session.id, array("i", self.prompt), array("i", self.ids), reply.message,
                placement.purpose, trail.head, self.thread, sent(trail, before), placement.placed,
            ),
            None if parent is None or prefix is None else prefix.digest,
        )  # fmt: skip
        self.session.replied(placement.purpose, reply.message)


class Listener:
    """One connection that follows a turn from its beginning. Use it as a context manager.

    When the last one leaves before the end, the sampling is dropped: nobody wants it any more.
    """

    def __init__(self, turn: LiveTurn) -> None:
        self._turn = turn
        self._news = asyncio.Event()
        self._heard = 0
        self._reported = 0

    def __enter__(self) -> Listener:
        self._turn.listeners.add(self)
        if self._turn.ids or self._turn.over:  # a retry comes late
            self._news.set()
        return self

    def __exit__(self, *_: object) -> None:
        self._turn.listeners.discard(self)
        if not self._turn.listeners:
            self._turn.drop()

    def wake(self) -> None:
        """Something was said, or it is over."""
        self._news.set()

    async def hear(self, patience: float | None) -> list[Delta] | None:
        """What was said since the last time; None when `patience` seconds passed in silence.

        An empty list comes when ids were sampled that say nothing yet, and at the end: see `LiveTurn.over`.
        """
        try:
            async with asyncio.timeout(patience):
                await self._news.wait()
        except TimeoutError:
            return None
        self._news.clear()
        new = self._turn.deltas[self._heard :]
        self._heard += len(new)
        return new

    def unreported(self) -> list[tuple[int, float, Likeliest]]:
        """Sampled ids since the last time, each with its logprob and the likeliest; but for a stop id at the end."""
        turn = self._turn
        upto = len(turn.ids)
        if upto and turn.ids[-1] in turn.model.files.stop_ids:
            upto -= 1
        places = range(self._reported, upto)
        new = [(turn.ids[i], turn.logprobs[i], turn.likeliest[i] if turn.likeliest else ()) for i in places]
        self._reported = max(self._reported, upto)
        return new
