"""Where a call belongs among its session's turns, and the prompt that this makes.

A call continues the turn that its conversation says it continues (:mod:`addons.lineage`), or opens a root and says why:

first            it begins a conversation of the session's agent
subagent         it begins one beside that: a subagent's, or a side call
compaction       it begins with a summary of an earlier conversation
harness_rewrote  it has a conversation of the session's with other messages, instructions or tools
volatile_header  the same, where nothing but header lines of the instructions is different
truncated        the same, where of a reply only the beginning was kept
template         the chat template cannot be extended there

The look-ups are rows of indexes, a bounded number of them however many turns the session has; a call that continues a
turn which this process knows needs none at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from addons import drift, media
from addons.backend import Model
from addons.caller import Caller
from addons.contexts import Context, Contexts
from addons.conversation import Call, Message
from addons.errors import BadRequest
from addons.images import Placed
from addons.lineage import Trail
from addons.neutral import message_from
from addons.prompts import BridgeRefused, TemplateError
from addons.purposes import purpose_of
from addons.sessions import LiveSession
from replay.ancestry import Ancestry
from replay.reader import Reader
from replay.records import DriftReason, Purpose
from replay.schema import Turn

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a call belongs and what that makes of its prompt. `prompt` = the parent's tokens + `suffix`."""

    trail: Trail
    parent: Context | None
    drift: DriftReason | None
    detail: str | None
    purpose: Purpose
    prompt: list[int]
    suffix: list[int]
    new: Sequence[Message]
    placed: tuple[Placed, ...] = ()
    """The images in the prompt."""
    rendering: dict[str, Any] | None = None
    """How the suffix was made; see :meth:`addons.prompts.Prompts.described`."""


@dataclass(frozen=True, slots=True)
class _Rendered:
    """Ids, the images among them, and how they were made."""

    ids: list[int]
    placed: tuple[Placed, ...]
    how: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Fork:
    """Why a call is a root. `reason` is None where it begins a conversation; `line` is the purpose of the turns that
    it would continue."""

    reason: DriftReason | None = None
    detail: str | None = None
    line: Purpose | None = None


def nowhere(trail: Trail) -> Placement:
    """The placement of a call that failed before it could be rendered: no tokens, all messages new."""
    return Placement(trail, None, None, None, "main", [], [], trail.conversation.messages)


class Placer:
    """Places calls."""

    def __init__(self, contexts: Contexts, reader: Reader) -> None:
        self._contexts = contexts
        self._reader = reader
        self._ancestry = Ancestry(reader.store)

    async def place(self, model: Model, session: LiveSession, caller: Caller, call: Call, trail: Trail) -> Placement:
        """Place a call of `session` after the turn that it continues, or as a root.

        Raises:
            BadRequest: the model's chat template refuses the messages, or vLLM one of their images.
        """
        if model.images is not None:
            await model.images.learn(call.conversation)
        known = session.known(trail)
        parent, trail = await self._find(session.id, trail, caller.thread)
        fork = _Fork()
        if parent is not None:
            try:
                suffix = await asyncio.to_thread(_extension, model, call, parent, trail)
            except BridgeRefused as refusal:
                logger.info("turn %d: no bridge to the next turn (%s)", parent.turn_id, refusal)
                fork = _Fork("template", f"after turn {parent.turn_id}: {refusal.reason}", parent.purpose)
            else:
                purpose = purpose_of(call, trail, caller, parent.purpose, known, continues=True)
                return Placement(
                    trail, parent, None, self._note(parent, trail), purpose,
                    [*parent.prompt, *parent.sampled, *suffix.ids], suffix.ids, _new(trail),
                    (*parent.placed, *suffix.placed), suffix.how,
                )  # fmt: skip
        else:
            fork = await self._fork(session, caller, trail)
        purpose = purpose_of(call, trail, caller, fork.line, known)
        reason = fork.reason or ("first" if purpose == "main" else "subagent")
        whole = await asyncio.to_thread(_whole, model, call)
        return Placement(
            trail, None, reason, fork.detail, purpose, whole.ids, whole.ids, trail.conversation.messages,
            whole.placed, whole.how,
        )  # fmt: skip

    async def prompt_length(self, model: Model, session_id: int | None, call: Call, trail: Trail) -> int:
        """Tokens of the prompt that a call would have. Raises as :meth:`place`."""
        if model.images is not None:
            await model.images.learn(call.conversation)
        parent = None
        if session_id is not None:
            parent, trail = await self._find(session_id, trail)
        if parent is not None:
            try:
                suffix = await asyncio.to_thread(_extension, model, call, parent, trail)
                return parent.tokens + len(suffix.ids)
            except BridgeRefused:
                pass  # then it is counted as it would be rendered: anew
        return len((await asyncio.to_thread(_whole, model, call)).ids)

    async def _find(self, session_id: int, trail: Trail, thread: str | None = None) -> tuple[Context | None, Trail]:
        """The turn that a call continues, and the trail that says so: a final message that the reply goes on from is
        a stored turn's reply, which a limit cut off, or new."""
        parent = await self._contexts.find(session_id, trail, thread)
        if parent is None and trail.conversation.continue_final_message:
            trail = trail.prefilled()
            parent = await self._contexts.find(session_id, trail, thread)
        return parent, trail

    def _note(self, parent: Context, trail: Trail) -> str | None:
        prefix = trail.continues
        assert prefix is not None
        return drift.noted(parent.sent, trail, prefix.messages)

    async def _fork(self, session: LiveSession, caller: Caller, trail: Trail) -> _Fork:
        """Why a call that continues no turn does not."""
        nearest = await self._contexts.nearest(session.id, trail)
        if nearest is not None and nearest[1] == trail.continues:
            parent = nearest[0]
            reason, detail = drift.other_head(parent.sent, trail)
            fork = _Fork(reason, f"after turn {parent.turn_id}: {detail}", parent.purpose)
            no_tools_any_more = parent.sent.tools and not trail.conversation.tools
            if no_tools_any_more and drift.instructed_otherwise(parent.sent, trail):
                return replace(fork, reason=None, line=None)  # a call about the conversation, not one of it
            return fork
        if caller.compacted or session.quoted(trail):
            return _Fork("compaction", "begins with a summary of an earlier conversation")
        if nearest is not None:
            parent, prefix = nearest
            return self._rewritten(
                self._ancestry.children(parent.turn_id), trail, prefix.messages,
                _Fork("harness_rewrote", f"after turn {parent.turn_id}", parent.purpose),
            )  # fmt: skip
        again = self._ancestry.roots(session.id, trail.opening)
        again = [root for root in again if None in (root.thread, caller.thread) or root.thread == caller.thread]
        if again:
            return self._rewritten(again, trail, 0, _Fork("harness_rewrote", None, _purpose(again[0])))
        if trail.prefixes and session.heads:
            return _Fork("harness_rewrote", "its assistant messages are none of this session's replies")
        return _Fork()

    def _rewritten(self, turns: Sequence[Turn], trail: Trail, start: int, fork: _Fork) -> _Fork:
        """What was changed against how the turns went on, newest first, that come from the same place."""
        now = trail.conversation.messages[start:]
        newest: _Fork | None = None
        for turn in turns:
            asked = [message_from(message) for message in self._reader.new_messages(turn)]
            if (found := drift.rewritten(asked, now, start)) is not None:
                newest = newest or _told(fork, found)
                continue
            if not any(message.role == "assistant" for message in now):
                return replace(fork, reason=_reason(turn), detail=f"the call of turn {turn.id} again")
            reply = message_from(self._reader.reply(turn) or {"role": "assistant"})
            if (found := drift.rewritten([*asked, reply], now, start)) is not None:
                return _told(fork, found)
        return newest or fork


def _told(fork: _Fork, found: tuple[DriftReason, str]) -> _Fork:
    return replace(fork, reason=found[0], detail=": ".join(filter(None, (fork.detail, found[1]))))


def _purpose(turn: Turn) -> Purpose:
    purpose: Purpose = turn.purpose  # type: ignore[assignment]
    return purpose


def _reason(turn: Turn) -> DriftReason | None:
    reason: DriftReason | None = turn.drift_reason  # type: ignore[assignment]
    return reason


def _new(trail: Trail) -> Sequence[Message]:
    """The messages after the turn that the call continues."""
    prefix = trail.continues
    assert prefix is not None
    return trail.conversation.messages[prefix.messages :]


# In a thread, both: rendering and tokenising a long history would stall every other stream.


def _extension(model: Model, call: Call, parent: Context, trail: Trail) -> _Rendered:
    """The prompt's ids after the parent's tokens, and the images among them. Raises BridgeRefused."""
    new = _new(trail)
    if model.images is None:
        if parent.placed:
            raise BridgeRefused("it shows images, and this vLLM takes none")
        said = media.in_words(call.conversation)
        new = said.messages[len(said.messages) - len(new) :]
        bridge = model.prompts.extend(said, parent.prompt, parent.sampled, parent.reply, new)
        return _Rendered(bridge.suffix, (), model.prompts.described(bridge))
    shown = media.images(new)
    if (parent.placed or shown) and model.images.sampled_one(parent.sampled):
        raise BridgeRefused("the reply has a token that stands for an image")
    try:
        bridge = model.prompts.extend(call.conversation, parent.prompt, parent.sampled, parent.reply, new)
        return _Rendered(*model.images.expand(bridge.suffix, shown, parent.tokens), model.prompts.described(bridge))
    except TemplateError as error:
        raise BridgeRefused(str(error)) from error


def _whole(model: Model, call: Call) -> _Rendered:
    """The whole prompt's ids, and the images among them."""
    conversation, how = call.conversation, model.prompts.described(None)
    try:
        if model.images is None:
            return _Rendered(model.prompts.first(media.in_words(conversation)), (), how)
        ids = model.prompts.first(conversation)
        return _Rendered(*model.images.expand(ids, media.images(conversation.messages)), how)
    except TemplateError as error:
        raise BadRequest(f"The model's chat template refuses these messages: {error}", param="messages") from error
