"""Where a call belongs among its session's turns, and the prompt that this makes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from addons import lineage
from addons.backend import Model
from addons.contexts import Context
from addons.conversation import Call, Message
from addons.errors import BadRequest
from addons.prompts import BridgeRefused, TemplateError
from addons.purposes import purpose_of
from addons.sessions import LiveSession
from replay.records import DriftReason, Purpose

logger = logging.getLogger(__name__)

Found = tuple[Context, lineage.Prefix]
"""A finished turn that a call continues, and the part of the call that it covers."""


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


def nowhere(call: Call) -> Placement:
    """The placement of a call that failed before it could be rendered: no tokens, all messages new."""
    conversation = call.conversation
    return Placement(None, None, lineage.opening(conversation), "main", [], [], conversation.messages)


async def place(model: Model, session: LiveSession, call: Call, found: Found | None) -> Placement:
    """Place a call of `session` after the turn that was found for it, or as a root.

    In a thread: rendering and tokenising a long history would stall every other stream.

    Raises:
        BadRequest: the model's chat template refuses the messages.
    """
    return await asyncio.to_thread(_place, model, session, call, found)


async def prompt_length(model: Model, call: Call, found: Found | None) -> int:
    """Tokens of the prompt that the call would have. Raises as :func:`place`."""
    return len((await asyncio.to_thread(_prompt, model, call, found))[0])


def _place(model: Model, session: LiveSession, call: Call, found: Found | None) -> Placement:
    conversation, opening = call.conversation, lineage.opening(call.conversation)
    prompt, suffix = _prompt(model, call, found)
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


def _prompt(model: Model, call: Call, found: Found | None) -> tuple[list[int], list[int] | None]:
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
