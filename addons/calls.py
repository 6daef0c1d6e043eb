"""The life of one model call between its parsed request and its committed turn."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from addons import lineage
from addons.backend import Backend, Model
from addons.caller import Caller, body_hint
from addons.config import GatewayConfig
from addons.constraints import constraint_of
from addons.contexts import Context, Contexts, message_json, tool_json
from addons.conversation import Call, Message
from addons.dialects.base import Dialect
from addons.errors import BadRequest, CallError, EngineUnavailable
from addons.ids import new_id
from addons.prompts import BridgeRefused, TemplateError
from addons.purposes import purpose_of
from addons.replies import ReplyParser
from addons.running import Runner, described
from addons.sampling import plan
from addons.sessions import Attempt, LiveSession, Sessions
from addons.stored import StoredResponses
from addons.turn import LiveTurn
from replay.reader import Reader
from replay.records import DriftReason, NewTurn, Purpose, TurnEnd
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


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a call belongs and what that makes of its prompt. `prompt` = the parent's tokens + `suffix`."""

    parent: Context | None
    drift: DriftReason | None
    opening: str
    purpose: Purpose
    prompt: list[int]
    suffix: list[int]
    new: Sequence[Message]


class Calls:
    """Places calls, renders their prompts and keeps their record."""

    def __init__(self, config: GatewayConfig, backend: Backend, recorder: Recorder, reader: Reader) -> None:
        self._config = config
        self._recorder = recorder
        self.backend = backend
        self.contexts = Contexts(reader)
        self.responses = StoredResponses(reader)
        self._sessions = Sessions(recorder, reader, self.contexts)
        self._runner = Runner(self.backend, recorder, self.contexts)

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
        if (running := session.joinable(request.key)) is not None and request.caller.retry_count:
            return running  # two siblings would be one call counted twice
        async with session.placing:  # calls that arrive together must know of one another
            return await self._place_and_open(request, session, candidates)

    async def _place_and_open(
        self, request: Request, session: LiveSession, candidates: list[lineage.Prefix]
    ) -> LiveTurn:
        call, placement = request.call, _nowhere(request.call)
        try:
            model = await self.backend.model()
            constraint = constraint_of(call, model.markup)
            found = self.contexts.find(session.id, candidates)
            # In a thread: rendering and tokenising a long history would stall every other stream.
            placement = await asyncio.to_thread(self._place, model, session, call, found)
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
            model.parser, placement.prompt, call.conversation.tools, call.sampling.stop,
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
        self.responses.clear()

    async def count(self, caller: Caller, call: Call) -> int:
        """Tokens of the prompt that this call would have: exactly, where its session is known also as continued."""
        model = await self.backend.model()
        session_id = self._sessions.known(caller)
        found = None
        if session_id is not None:
            found = self.contexts.find(session_id, lineage.prefixes(call.conversation))
        return len((await asyncio.to_thread(self._prompt, model, call, found))[0])

    def delivered(self, turn: LiveTurn) -> None:
        """The terminal event was handed to the connection."""
        turn.session.delivered(turn)
        self._recorder.mark_delivered(turn.id, time.time())

    def _place(
        self, model: Model, session: LiveSession, call: Call, found: tuple[Context, lineage.Prefix] | None
    ) -> Placement:
        conversation, opening = call.conversation, lineage.opening(call.conversation)
        prompt, suffix = self._prompt(model, call, found)
        if found is not None and suffix is not None:
            context, prefix = found
            purpose = purpose_of(call, None, context.purpose, session_has_tools=session.offers_tools)
            new = conversation.messages[prefix.messages :]
            return Placement(context, None, context.opening, purpose, prompt, suffix, new)
        drift: DriftReason = "template"
        if found is None:
            drift = lineage.drift(first=not session.openings, same_opening=opening in session.openings)
        inherited = None if found is None else found[0].purpose
        purpose = purpose_of(call, drift, inherited, session_has_tools=session.offers_tools)
        return Placement(None, drift, opening, purpose, prompt, prompt, conversation.messages)

    def _prompt(
        self, model: Model, call: Call, found: tuple[Context, lineage.Prefix] | None
    ) -> tuple[list[int], list[int] | None]:
        """The whole prompt's ids, and those of them after the parent's tokens; None for what must be a root."""
        conversation = call.conversation
        try:
            if found is not None:
                context, prefix = found
                new = conversation.messages[prefix.messages :]
                try:
                    bridge = model.prompts.extend(conversation, context.prompt, context.sampled, context.reply, new)
                    return [*context.prompt, *context.sampled, *bridge.suffix], bridge.suffix
                except BridgeRefused as refusal:
                    logger.info("turn %d: no bridge to the next turn (%s)", context.turn_id, refusal)
            return model.prompts.first(conversation), None
        except TemplateError as error:
            raise BadRequest(f"The model's chat template refuses these messages: {error}", param="messages") from error

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


def _nowhere(call: Call) -> Placement:
    """The placement of a call that failed before it could be rendered: no tokens, all messages new."""
    conversation = call.conversation
    return Placement(None, None, lineage.opening(conversation), "main", [], [], conversation.messages)


def _abandon(working: asyncio.Task[LiveTurn]) -> None:
    """Nobody waits for this turn any more."""
    if working.cancelled() or working.exception() is not None:
        return
    turn = working.result()
    if not turn.listeners:
        turn.drop()
