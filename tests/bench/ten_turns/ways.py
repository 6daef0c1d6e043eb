"""The prompts of a recorded session as others would have made them, from the messages that the harness really sent.

Both ways get the messages as our dialects read them, which is more than fair: a header that is new in every request is
gone already, and neighbouring pieces of a reply are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from addons import media
from addons.body import mended
from addons.conversation import Conversation, Message
from addons.dialects.base import DIALECTS, Target
from addons.neutral import message_from, tool_from
from addons.prompts import BridgeRefused, Prompts
from addons.stored import StoredReplies
from replay.reader import Reader
from replay.readiness import reasons_not_trained
from replay.schema import Session, Turn

Tokens = tuple[list[int], list[int]]
"""A call's prompt ids and its sampled ids."""


@dataclass(frozen=True)
class Asked:
    """A call of the agent's own, as the harness sent it, and what was said to it. `tokens` are those of the record."""

    conversation: Conversation
    reply: Message
    tokens: Tokens


def calls_of(reader: Reader, session: Session) -> list[Asked]:
    """The calls of a session that are trained by default, in order."""
    turns = reader.turns(session, tokens=True)
    reasons = reasons_not_trained(turns)
    return [
        Asked(
            _sent(reader, turn), message_from(reader.reply(turn) or {}), (reader.prompt_ids(turn), turn.sampled or [])
        )
        for turn in turns
        if reasons[turn.id] is None
    ]


def rerendered(prompts: Prompts, calls: Sequence[Asked]) -> list[Tokens]:
    """Each call's messages through the chat template, whole."""
    return [(prompts.first(call.conversation), call.tokens[1]) for call in calls]


def exact_prefix(prompts: Prompts, calls: Sequence[Asked]) -> list[Tokens]:
    """A call goes on the tokens of the earlier one whose messages, with the reply to it, are exactly the beginning of
    its own: the longest. Any other is rendered whole."""
    made: list[Tokens] = []
    for call in calls:
        fitting = [index for index, before in enumerate(calls[: len(made)]) if _begins(before, call)]
        prompt: list[int] | None = None
        if fitting:
            longest = max(fitting, key=lambda index: len(calls[index].conversation.messages))
            prompt = _extended(prompts, calls[longest], made[longest], call)
        made.append((prompts.first(call.conversation) if prompt is None else prompt, call.tokens[1]))
    return made


def _sent(reader: Reader, turn: Turn) -> Conversation:
    """A request that brings only what is new leaves the rest with its provider: there nothing can have changed."""
    body, dialect = mended(reader.request(turn)), DIALECTS[turn.dialect]
    if dialect.continuing is not None and dialect.continuing.previous(body) is not None:
        messages = tuple(map(message_from, reader.messages(turn)))
        return Conversation(messages, tuple(map(tool_from, reader.tools(turn))))
    read = dialect.read(
        body, Target(turn.model or "", socket="type" in body), StoredReplies(reader).look_up(dialect, None)
    )
    return media.in_words(read.conversation)


def _begins(before: Asked, call: Asked) -> bool:
    whole = [*before.conversation.messages, replace(before.reply, name=None)]
    same_head = before.conversation.tools == call.conversation.tools
    return same_head and list(call.conversation.messages[: len(whole)]) == whole


def _extended(prompts: Prompts, before: Asked, tokens: Tokens, call: Asked) -> list[int] | None:
    new = call.conversation.messages[len(before.conversation.messages) + 1 :]
    try:
        suffix = prompts.extend(call.conversation, *tokens, before.reply, new).suffix
    except BridgeRefused:
        return None
    return [*tokens[0], *tokens[1], *suffix]
