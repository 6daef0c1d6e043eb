"""The life of one model call between its parsed request and its committed turn."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from addons import lineage
from addons.backend import Backend, Model
from addons.body import read_json
from addons.caller import Caller, body_hint
from addons.config import GatewayConfig
from addons.constraints import constraint_of
from addons.contexts import Contexts, message_json, tool_json
from addons.conversation import Call
from addons.dialects.base import Dialect, Target
from addons.errors import CallError, EngineUnavailable, NotFound
from addons.ids import new_id
from addons.placement import Placement, nowhere, place, prompt_length
from addons.replies import ReplyParser
from addons.running import Runner, described
from addons.sampling import plan
from addons.sessions import Attempt, LiveSession, Sessions
from addons.stored import StoredReplies
from addons.turn import LiveTurn
from replay.reader import Reader
from replay.records import NewTurn, TurnEnd
from replay.writer import Recorder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """One model call as it arrived: `body` is the parsed JSON, `raw` the bytes it came as."""

    dialect: Dialect
    route: str
    caller: Caller
    body: dict[str, Any]
    raw: bytes
    call: Call
    received_at: float
    reply_id: str
    """The id the reply will carry on the wire."""

    @cached_property
    def digest(self) -> str:
        """sha256 of the raw body, hex; once a call, since a body may be megabytes."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def key(self) -> str:
        """What a retry of this call has in common with it: the body, and the URL where the rest of the call is."""
        return f"{self.dialect.name} {self.route} {self.call.stream} {self.digest}"


class Calls:
    """Places calls, renders their prompts and keeps their record."""

    def __init__(self, config: GatewayConfig, backend: Backend, recorder: Recorder, reader: Reader) -> None:
        self._config = config
        self._recorder = recorder
        self.backend = backend
        self.contexts = Contexts(reader)
        self._replies = StoredReplies(reader)
        self._sessions = Sessions(recorder, reader, self.contexts)
        self._runner = Runner(self.backend, recorder, self.contexts)

    def read(self, dialect: Dialect, route: str, target: Target, caller: Caller, raw: bytes) -> Request:
        """Read a request, with all that it continues by id.

        Raises:
            CallError: in the dialect's words.
        """
        received_at = time.time()
        body, readable = read_json(raw)
        call = dialect.read(readable, target, self._replies.look_up(dialect, caller.session))
        if readable is not body:
            call = call.reporting("lone surrogates")
        return Request(dialect, route, caller, body, raw, call, received_at, new_id(dialect.reply_id))

    def remember(self, request: Request) -> None:
        """Let a later call continue one that asked for no sampling, and so is no turn."""
        self._replies.remember(request.dialect, request.reply_id, request.body, request.caller.session)

    async def begin(self, request: Request) -> LiveTurn:
        """Everything before vLLM is asked; the turn is committed as `open` when this returns.

        A retry of a call whose reply never arrived gets that call's turn again, finished or not. A harness that leaves
        meanwhile leaves no row half written: the work goes on, and what nobody waits for is aborted.

        Raises:
            CallError: for the harness, once the turn is stored as failed.
        """
        working = asyncio.create_task(self._begin(request))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            working.add_done_callback(_abandon)
            raise

    async def _begin(self, request: Request) -> LiveTurn:
        call = request.call
        candidates = lineage.prefixes(call.conversation)
        session = await self._sessions.resolve(request.caller, body_hint(request.body), candidates)
        earlier = session.joinable(request.key)
        if earlier is not None and (request.caller.retry_count or earlier.left_behind):
            return earlier  # two siblings would be one call counted twice
        async with session.placing:  # calls that arrive together must know of one another
            return await self._place_and_open(request, session, candidates)

    async def _place_and_open(
        self, request: Request, session: LiveSession, candidates: list[lineage.Prefix]
    ) -> LiveTurn:
        call, placement = request.call, nowhere(request.call)
        try:
            model = await self.backend.model()
            constraint = constraint_of(call, model.markup)
            found = self.contexts.find(session.id, candidates)
            placement = await place(model, session, call, found)
            sampling = plan(
                call.sampling, policy=self._config.sampling, prompt_tokens=len(placement.prompt),
                window=model.facts.window, output_cap=self._config.output_cap,
                stop_ids=tuple(sorted(model.files.stop_ids)), constraint=constraint, top_logprobs=call.top_logprobs,
                train_constrained=self._config.train_constrained,
            )  # fmt: skip
            version = await self.backend.engine.weight_version(model.facts)
        except CallError as error:
            logger.warning("%s: %s", session.name, error.message)
            await self._store_failed(request, session, placement, error)
            if isinstance(error, EngineUnavailable):
                self.backend.forget()
            raise
        turn_id = await self._open(request, session, placement, model, sampling.params, version, sampling.overridden)
        session.openings.add(placement.opening)
        session.offers_tools = session.offers_tools or bool(call.conversation.tools)
        parser = ReplyParser(
            model.parser, placement.prompt, () if call.compaction else call.conversation.tools, call.sampling.stop,
            lambda: new_id(request.dialect.call_id),
        )  # fmt: skip
        turn = LiveTurn(
            turn_id, request.reply_id, request.received_at, session, call, model, placement.prompt, sampling.params,
            parser, placement.purpose, placement.opening, sampling.untrainable,
        )  # fmt: skip
        session.expect_delivery(request.key, turn)
        self._runner.start(turn)
        return turn

    def forget(self) -> None:
        """Drop every cache in front of the record."""
        self.contexts.clear()
        self._replies.clear()

    def read_count(self, dialect: Dialect, target: Target, caller: Caller, raw: bytes) -> Call:
        """Read the body of a token count. Raises as :meth:`read`, and NotFound where the provider has no such route."""
        if dialect.read_count is None:
            raise NotFound(f"{dialect.name} has no route that counts tokens.", code="unknown_url")
        _, readable = read_json(raw)
        return dialect.read_count(readable, target, self._replies.look_up(dialect, caller.session))

    async def count(self, caller: Caller, call: Call) -> int:
        """Tokens of the prompt that this call would have: exactly, where its session is known also as continued."""
        model = await self.backend.model()
        session_id = self._sessions.known(caller)
        found = None
        if session_id is not None:
            found = self.contexts.find(session_id, lineage.prefixes(call.conversation))
        return await prompt_length(model, call, found)

    def delivered(self, turn: LiveTurn) -> None:
        """The terminal event was handed to the connection."""
        turn.session.delivered(turn)
        self._recorder.mark_delivered(turn.id, time.time())

    async def _open(
        self, request: Request, session: LiveSession, placement: Placement, model: Model | None,
        params: dict[str, Any], version: str | None, overridden: tuple[str, ...] = (),
    ) -> int:  # fmt: skip
        new = NewTurn(
            session_id=session.id,
            parent_id=None if placement.parent is None else placement.parent.turn_id,
            purpose=placement.purpose,
            dialect=request.dialect.name,
            route=request.route,
            model=request.call.model,
            prompt_suffix=placement.suffix,
            prompt_length=len(placement.prompt),
            sampling_asked=request.call.sampling.asked(),
            sampling_sent=params,
            ignored_fields=tuple(sorted({*request.call.ignored_fields, *overridden})),
            drift_reason=placement.drift,
            template_hash=None if model is None else model.files.template_hash,
            weight_version=version,
            received_at=request.received_at,
            retry_of=session.earlier(request.key),
            body_digest=request.digest,
            request=request.body,
            messages=tuple(message_json(m) for m in placement.new),
            tools=tuple(tool_json(t) for t in request.call.conversation.tools),
            opening=placement.opening,
            reply_id=request.reply_id,
        )
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
