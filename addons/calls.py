"""The life of one model call between its parsed request and its committed turn."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from functools import partial
from typing import Any

from addons import media
from addons.backend import Backend, Model
from addons.body import read_json
from addons.caller import Caller, with_body
from addons.config import GatewayConfig
from addons.constraints import constraint_of
from addons.contexts import Contexts
from addons.conversation import Call
from addons.dialects.base import Dialect, Target
from addons.errors import CallError, EngineUnavailable, NotFound
from addons.ids import new_id
from addons.lineage import Trail, trail
from addons.new_turn import new_turn
from addons.placement import Placement, Placer, nowhere
from addons.recalled import recalled
from addons.replies import ReplyParser
from addons.request import Request
from addons.reserve import Reserve
from addons.reserve_options import ReserveOptions
from addons.running import Runner, described
from addons.sampling import Plan, plan
from addons.sessions import Attempt, LiveSession, Sessions
from addons.stored import StoredReplies
from addons.turn import LiveTurn
from replay.reader import Reader
from replay.records import TurnEnd
from replay.seeds import derived
from replay.writer import Recorder

logger = logging.getLogger(__name__)


class Calls:
    """Places calls, renders their prompts and keeps their record."""

    def __init__(
        self,
        config: GatewayConfig,
        backend: Backend,
        recorder: Recorder,
        reader: Reader,
        reserve: ReserveOptions | None = None,
    ) -> None:
        self._config = config
        self._recorder = recorder
        self._reader = reader
        self.backend = backend
        self.contexts = Contexts(reader)
        self._replies = StoredReplies(reader)
        self._placer = Placer(self.contexts, reader)
        self._sessions = Sessions(recorder, reader, self.contexts)
        self._runner = Runner(self.backend, recorder, self.contexts)
        self.reserve = None if reserve is None else Reserve(reserve, reader, recorder, self.contexts)

    async def read(self, dialect: Dialect, route: str, target: Target, caller: Caller, raw: bytes) -> Request:
        """Read a request, with all that it continues by id: in a thread, since it may be megabytes of images.

        Raises:
            CallError: in the dialect's words.
        """
        return await asyncio.to_thread(self._read, dialect, route, target, caller, raw)

    def _read(self, dialect: Dialect, route: str, target: Target, caller: Caller, raw: bytes) -> Request:
        received_at = time.time()
        body, readable = read_json(raw)
        call = dialect.read(readable, target, self._replies.look_up(dialect, caller.session))
        if readable is not body:
            call = call.reporting("lone surrogates")
        caller = with_body(caller, body)
        request = Request(dialect, route, caller, body, raw, call, received_at, new_id(dialect.reply_id))
        _ = request.digest  # here, since it takes its time as well
        return request

    def remember(self, request: Request) -> None:
        """Let a later call continue one that asked for no sampling, and so is no turn."""
        self._replies.remember(request.dialect, request.reply_id, request.body, request.caller.session)

    def stored(self, dialect: Dialect, reply_id: str, caller: Caller) -> bytes:
        """An earlier reply. Raises NotFound, in the provider's words, where the caller has none with this id."""
        found = self._replies.whole(dialect, reply_id, caller.session)
        if found is None:
            raise NotFound(f"Response with id '{reply_id}' not found.")
        return found

    async def begin(self, request: Request) -> LiveTurn:
        """Everything before vLLM is asked; the turn is committed as `open` when this returns.

        A retry of a call whose reply never arrived gets that call's turn again, finished or not. A harness that leaves
        meanwhile leaves no row half written: the work goes on, and what nobody waits for is aborted.

        Raises:
            CallError: for the harness, once the turn is stored as failed.
        """
        while True:
            working = asyncio.create_task(self._begin(request))
            try:
                turn = await asyncio.shield(working)
            except asyncio.CancelledError:
                working.add_done_callback(_abandon)
                raise
            if not turn.dropped:  # all others left in the moment that it was joined
                return turn

    async def _begin(self, request: Request) -> LiveTurn:
        digested = await asyncio.to_thread(trail, request.call.conversation)
        if self.reserve is not None and (edited := self.reserve.edited(request.call, digested)) is not request.call:
            request = replace(request, call=edited)
            digested = await asyncio.to_thread(trail, edited.conversation)
        session = await self._sessions.resolve(request.caller, digested)
        earlier = session.joinable(request.key)
        if earlier is not None and (request.caller.retry_count or earlier.left_behind):
            return earlier  # two siblings would be one call counted twice
        if earlier is None and (turn := await self._recall(request, session, digested)) is not None:
            return turn
        async with session.placing:  # calls that arrive together must know of one another
            return await self._place_and_open(request, session, digested)

    async def _recall(self, request: Request, session: LiveSession, digested: Trail) -> LiveTurn | None:
        """The turn of this very call whose reply an earlier process could not deliver any more."""
        turn_id = None if self.reserve else self._sessions.earlier(session, request.key, request.digest)
        if turn_id is None or request.key in session.undelivered:
            return None
        model = await self.backend.model()
        turn = await asyncio.to_thread(
            recalled, self._reader, turn_id, request.route, session, request.call, digested, model
        )
        if turn is not None:
            session.expect_delivery(request.key, turn)
        return turn

    async def _place_and_open(self, request: Request, session: LiveSession, digested: Trail) -> LiveTurn:
        call, placement, stored = request.call, nowhere(digested), None
        try:
            model = await self.backend.model()
            if self.reserve is not None:
                self.reserve.check(model.files)
                stored = await self.reserve.answer(session, request.dialect.name, call, digested)
            if self.reserve is not None and stored is not None:
                placement = await self.reserve.placed(session, request.caller.thread, digested, stored)
                sampling = Plan(stored.turn.sampling_sent, (), self.reserve.why_untrainable(stored))
                version = stored.turn.weight_version
            else:
                media.check(call, sees=model.images is not None, policy=self._config.images)
                placement = await self._placer.place(model, session, request.caller, call, digested)
                caps = [cap for cap in (self._config.output_cap, session.budget.left()) if cap is not None]
                thinking = model.parser.thinking(placement.prompt)
                constraint = constraint_of(call, model.markup, thinking=thinking)
                sampling = plan(
                    call.sampling if self.reserve is None else self.reserve.sampling(call.sampling),
                    policy=self._config.sampling, prompt_tokens=len(placement.prompt), window=model.facts.window,
                    output_cap=min(caps, default=None), stop_ids=tuple(sorted(model.files.stop_ids)),
                    constraint=constraint, top_logprobs=call.top_logprobs,
                    train_constrained=self._config.train_constrained,
                    seed=None if session.seed is None else derived(session.seed, session.budget.turns),
                )  # fmt: skip
                version = await self.backend.engine.weight_version(model.facts)
        except CallError as error:
            logger.warning("%s: %s", session.name, error.message)
            await self._store_failed(request, session, placement, error)
            if isinstance(error, EngineUnavailable):
                self.backend.forget()
            raise
        turn_id = await self._open(
            request, session, placement, model, sampling.params, version, sampling.overridden,
            None if stored is None else stored.turn.id,
        )  # fmt: skip
        if stored is None:
            session.budget.turns += 1
        await self._learn(session, turn_id, placement, request.caller)
        fresh = partial(new_id, request.dialect.call_id)
        parser = ReplyParser(
            model.parser, placement.prompt, () if call.compaction else call.conversation.tools, call.sampling.stop,
            fresh if stored is None else stored.ids(fresh),
        )  # fmt: skip
        turn = LiveTurn(
            turn_id, request.reply_id, request.received_at, session, call, model, sampling.params, parser, placement,
            request.caller.thread, sampling.untrainable or ("images in the prompt" if placement.placed else None),
            engine=stored,
        )  # fmt: skip
        session.expect_delivery(request.key, turn)
        self._runner.start(turn)
        return turn

    def forget(self) -> None:
        """Drop every cache in front of the record."""
        self.contexts.clear()
        self._replies.clear()

    async def read_count(self, dialect: Dialect, target: Target, caller: Caller, raw: bytes) -> Call:
        """Read the body of a token count. Raises as :meth:`read`, and NotFound where the provider has no such route."""
        if dialect.read_count is None:
            raise NotFound(f"{dialect.name} has no route that counts tokens.", code="unknown_url")
        read, stored = dialect.read_count, self._replies.look_up(dialect, caller.session)
        return await asyncio.to_thread(lambda: read(read_json(raw)[1], target, stored))

    async def count(self, caller: Caller, call: Call) -> int:
        """Tokens of the prompt that this call would have: exactly, where its session is known also as continued."""
        model = await self.backend.model()
        media.check(call, sees=model.images is not None, policy=self._config.images)
        session_id = self._sessions.known(caller)
        digested = await asyncio.to_thread(trail, call.conversation)
        return await self._placer.prompt_length(model, session_id, call, digested)

    def delivered(self, turn: LiveTurn) -> None:
        """The terminal event was handed to the connection."""
        turn.session.delivered(turn)
        self._recorder.mark_delivered(turn.id, time.time())

    async def _learn(self, session: LiveSession, turn_id: int, placement: Placement, caller: Caller) -> None:
        """Let the session know of a call that was placed; those before it that were side calls are told so."""
        parent_id = None if placement.parent is None else placement.parent.turn_id
        for root in session.opened(turn_id, placement.purpose, placement.trail, parent_id, caller):
            await asyncio.wrap_future(self._recorder.set_aside(root, "title"))

    async def _open(
        self, request: Request, session: LiveSession, placement: Placement, model: Model | None,
        params: dict[str, Any], version: str | None, overridden: tuple[str, ...] = (),
        replays: int | None = None,
    ) -> int:  # fmt: skip
        beside = session.joinable(request.key)
        # What is still being listened to is the same call made twice at once, and not tried again.
        heard = beside is not None and bool(beside.listeners)
        retry_of = None if heard else self._sessions.earlier(session, request.key, request.digest)
        new = new_turn(request, session.id, placement, model, params, version, overridden, retry_of, replays)
        return await asyncio.wrap_future(self._recorder.open_turn(new))

    async def _store_failed(
        self, request: Request, session: LiveSession, placement: Placement, error: CallError
    ) -> None:
        turn_id = await self._open(request, session, placement, None, {}, None)
        session.undelivered[request.key] = Attempt(turn_id, None)
        end = TurnEnd(status="failed", sampled=(), logprobs=(), done_at=time.time(), error=described(error))
        await asyncio.wrap_future(self._recorder.finish_turn(turn_id, end))


def _abandon(working: asyncio.Task[LiveTurn]) -> None:
    """Nobody waits for this turn any more."""
    if working.cancelled() or working.exception() is not None:
        return
    turn = working.result()
    if not turn.listeners:
        turn.drop()
