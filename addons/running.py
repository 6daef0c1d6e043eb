"""Sampling a turn to its end, whatever end that is, and committing it.

One task a turn. It ends by the engine's finish, by a stop of ours, by the engine's failure, by the last listener
leaving, or by a fault; in each case the row is written with all that was sampled, and only then are the listeners
told. A fault is logged and told as an error: a harness must neither wait for ever nor believe in a reply that
is not in the record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from typing import Any

from addons.backend import Backend
from addons.contexts import Contexts
from addons.conversation import Message, Reply, Usage
from addons.errors import CallError, EngineRefused, EngineUnavailable, Fault
from addons.turn import LiveTurn
from replay.records import EndStatus
from replay.writer import Recorder

logger = logging.getLogger(__name__)

_ENDS = ("stop", "length")
"""How vLLM ends a completion by itself. `abort` is somebody else's doing, and no reply."""
_CHANGED = (400, 404, 422)
"""What a vLLM answers that came back as another: its name, window or version must be asked again."""


class Runner:
    """Runs turns."""

    def __init__(self, backend: Backend, recorder: Recorder, contexts: Contexts) -> None:
        self._backend = backend
        self._recorder = recorder
        self._contexts = contexts

    def start(self, turn: LiveTurn) -> None:
        """Begin to sample."""
        turn.task = asyncio.create_task(self._run(turn), name=f"turn {turn.id}")

    async def _run(self, turn: LiveTurn) -> None:
        error: CallError | None = None
        try:
            await self._sample(turn)
        except CallError as failed:
            error = failed
        except asyncio.CancelledError:
            # Every connection left. This task is ours alone, so it may go on to keep what was sampled.
            await self._end(turn, "aborted", None)
            raise
        except Exception as fault:
            logger.exception("turn %d failed by a fault of ours", turn.id)
            error = Fault(f"{type(fault).__name__}: {fault}")
        if isinstance(error, EngineUnavailable) or (isinstance(error, EngineRefused) and error.status in _CHANGED):
            self._backend.forget()
        await self._end(turn, "complete" if error is None else "failed", error)

    async def _sample(self, turn: LiveTurn) -> None:
        engine, budget = turn.engine or self._backend.engine, turn.session.budget
        shown = await asyncio.to_thread(turn.shown) if turn.placement.placed else None
        sampling = engine.sample(turn.model.facts, turn.prompt, turn.params, stream=turn.must_stream, shown=shown)
        async with aclosing(sampling) as pieces:
            async for piece in pieces:
                if not piece.ids and piece.finish is None:  # an account of what was cached, behind the end
                    turn.take(piece)
                    continue
                before = len(turn.ids)
                # What is re-served costs nothing, and must come out as it was.
                kept = piece if turn.engine is not None else budget.cut(piece, begun=before > 0)
                turn.take(kept)
                if turn.engine is None:
                    budget.tokens += len(turn.ids) - before
                if turn.enough or kept is not piece:
                    return
        finish = None if turn.last is None else turn.last.finish
        if finish not in _ENDS:
            raise EngineUnavailable(f"vLLM broke the completion off (finish_reason {finish!r})")

    async def _end(self, turn: LiveTurn, status: EndStatus, error: CallError | None) -> None:
        """Commit what was sampled, and only then tell the listeners that it is over."""
        turn.ending = True
        reply, version = _NOTHING, None
        try:
            reply = turn.conclude()
            if status == "complete" and not turn.versions:
                version = await self._weight_version(turn)
            end = turn.end(status, reply, version, described(error))
            await asyncio.wrap_future(self._recorder.finish_turn(turn.id, end))
            turn.remember(self._contexts, end.after_digest or "", reply)
            self._report(turn, status, error)
        except Exception as fault:
            logger.exception("turn %d could not be recorded", turn.id)
            error = Fault(f"the reply could not be recorded ({type(fault).__name__})")
        finally:
            turn.error, turn.reply = error, reply
            turn.session.settle(turn)
            turn.tell()

    def _report(self, turn: LiveTurn, status: EndStatus, error: CallError | None) -> None:
        """The proxy's log: a line a call."""
        took = time.time() - turn.received_at
        logger.log(
            logging.INFO if error is None else logging.WARNING,
            "%s turn %d %s: %d + %d tokens, %.1f s%s",
            turn.session.name, turn.id, status, len(turn.prompt), len(turn.ids), took,
            "" if error is None else f": {error.message}",
        )  # fmt: skip

    async def _weight_version(self, turn: LiveTurn) -> str | None:
        try:
            return await (turn.engine or self._backend.engine).weight_version(turn.model.facts)
        except CallError as gone:
            # The reply is whole and must be kept; only which weights ended it is unknown.
            logger.warning("turn %d: weight version at its end unknown: %s", turn.id, gone)
            self._backend.forget()
            return None


_NOTHING = Reply(Message("assistant"), "abort", Usage(0, 0))


def described(error: CallError | None) -> dict[str, Any] | None:
    """An error for the record."""
    if error is None:
        return None
    return {"kind": error.kind, "status": error.status, "message": error.message, "at": time.time()}
