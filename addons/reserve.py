"""Answering a harness from a stored session, or from its beginning, in the place of vLLM.

A call is answered by the stored turn whose conversation means the same (:mod:`addons.meaning` has the rule), whatever
the order the calls come in, so parallel subagents each get their own. The stored ids are served on the stored prompt:
what the harness tells of the moment (the date, its directory) may differ, and the model's own words stay what they
were. A call that no stored turn answers is refused with the first difference from the one it comes nearest to, or goes
to vLLM, where that is wanted or where the stored part is meant to end.

The run is recorded as a session of its own. Its turns name the turns they were answered from (`replays`) and are not
trained: their tokens were sampled for another session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from addons.contexts import Contexts
from addons.conversation import Call, Conversation, Media, Message, Sampling
from addons.errors import CallError, EngineMismatch, NotFound
from addons.images import Placed
from addons.lineage import Trail, trail
from addons.model import ModelFiles
from addons.neutral import message_from, tool_from
from addons.placement import Placement
from addons.reserve_difference import agreement, different
from addons.reserve_options import ReserveOptions
from addons.reserve_reply import StoredReply
from addons.sessions import LiveSession
from replay.compare import Difference
from replay.reader import Reader, UnknownSession
from replay.records import DriftReason, NewSession, Purpose
from replay.schema import Turn
from replay.volatile import DEFAULT, Volatile
from replay.writer import Recorder

logger = logging.getLogger(__name__)

_NOTHING = Message("assistant")


class Unanswered(CallError):
    """No stored turn answers a call.

    With the status that harnesses of the dialect do not send a call again for: Codex stops at a 400, and what is built
    on LiteLLM at a 404.
    """

    status = 400
    kind = "invalid_request"

    def __init__(self, message: str, dialect: str) -> None:
        super().__init__(message, code="not_in_replayed_session")
        if dialect == "chat":
            self.status, self.kind = 404, "not_found"


@dataclass(frozen=True, slots=True)
class _Stored:
    """A turn of the stored session, with what its call said."""

    number: int
    turn: Turn
    trail: Trail
    reply: dict[str, Any]
    prompt: list[int]
    images: tuple[Placed, ...]

    @property
    def key(self) -> tuple[str, str]:
        return _key(self.trail)


class Reserve:
    """Finds the stored turn that answers a call.

    Args:
        options: what to answer from.
        reader: of the record that has it.
        recorder: of the record that the run goes to.
        contexts: where the run's own turns are found.
    """

    def __init__(self, options: ReserveOptions, reader: Reader, recorder: Recorder, contexts: Contexts) -> None:
        self._options = options
        self._volatile = Volatile((*DEFAULT, *options.ignore))
        self._recorder = recorder
        self._contexts = contexts
        self._turns = _load(reader, options, self._volatile)
        self._by_key: dict[tuple[str, str], list[_Stored]] = {}
        for stored in sorted(self._turns, key=lambda one: one.turn.status != "complete"):  # what ended well comes first
            self._by_key.setdefault(stored.key, []).append(stored)
        self._last = self._turns[-1] if options.until else None
        self._served: dict[str, Counter[int]] = {}
        self._passed: set[str] = set()
        """Sessions that were served the last turn: from there on they are live."""

    def check(self, files: ModelFiles) -> None:
        """Raise EngineMismatch where the model's files are not those the session was recorded with."""
        hashes = {stored.turn.template_hash for stored in self._turns if stored.turn.template_hash is not None}
        if hashes and files.template_hash not in hashes:
            raise EngineMismatch(
                f"session {self._options.session!r} was recorded with another tokenizer or chat template than that of "
                f"{files.name} (recorded {min(hashes):.12}, here {files.template_hash:.12}): give its model's folder"
            )

    async def answer(self, session: LiveSession, dialect: str, call: Call, asked: Trail) -> StoredReply | None:
        """The stored turn that answers a call; None where the call is to be sampled.

        Raises:
            Unanswered: no stored turn answers it, and it may not go to vLLM.
        """
        served = self._served.get(session.name)
        if served is None:
            served = self._served[session.name] = await self._begin(session, dialect)
        live = session.name in self._passed
        steady = await asyncio.to_thread(self._steady, asked)
        twins = self._by_key.get(_key(steady), [])
        left = [stored for stored in twins if not served[stored.turn.id]]
        why = _asks_otherwise(left[0], call) if left else self._nearest(twins, steady, asked)
        if why is None:
            stored = left[0]
            served[stored.turn.id] += 1
            if self._last is not None and stored.turn.id == self._last.turn.id:
                self._passed.add(session.name)
            calls = tuple(one["id"] for one in stored.reply.get("tool_calls") or ())
            return StoredReply(stored.turn, stored.number, calls, self._options.cadence)
        if live:
            return None
        told = f"this request is not in session {self._options.session!r}: {why}"
        if self._options.then == "stop":
            raise Unanswered(told, dialect)
        logger.warning("%s: %s; it goes to vLLM", session.name, told)
        return None

    async def placed(self, session: LiveSession, thread: str | None, asked: Trail, reply: StoredReply) -> Placement:
        """Where an answered call belongs in the run's own tree: as the stored one does, on the same ids."""
        turn = reply.turn
        [stored] = [one for one in self._turns if one.turn.id == turn.id]
        purpose = cast(Purpose, turn.purpose)
        continued = turn.parent_id is not None
        parent = await self._contexts.find(session.id, asked, thread) if continued else None
        before = stored.prompt[: turn.prompt_length - turn.suffix_length]
        prefix = asked.continues
        images = stored.images
        if parent is not None and prefix is not None and [*parent.prompt, *parent.sampled] == before:
            new = asked.conversation.messages[prefix.messages :]
            return Placement(asked, parent, None, None, purpose, stored.prompt, turn.prompt_suffix, new, images)
        reason = cast(DriftReason, turn.drift_reason or "harness_rewrote")
        messages = asked.conversation.messages
        return Placement(
            asked, None, reason, turn.drift_detail, purpose, stored.prompt, stored.prompt, messages, images
        )

    def why_untrainable(self, reply: StoredReply) -> str:
        """For the record."""
        return f"re-served from turn {reply.number} of {self._options.session}"

    def sampling(self, asked: Sampling) -> Sampling:
        """What a live call asks, with what is overridden."""
        return replace(asked, **self._options.sampling)

    def edited(self, call: Call, asked: Trail) -> Call:
        """A call with the edits made in what it says after the last served turn; itself where it has no such."""
        if not self._options.edits or self._last is None:
            return call
        after = self._last.trail.after(message_from(self._last.reply))
        prefixes = self._steady(asked).prefixes
        start = next((prefix.messages for prefix in prefixes if prefix.digest == after), None)
        if start is None:
            return call
        messages = call.conversation.messages
        edited = tuple(self._edit(message) for message in messages[start:])
        return replace(call, conversation=replace(call.conversation, messages=(*messages[:start], *edited)))

    def _edit(self, message: Message) -> Message:
        if message.role == "assistant":  # what the model said stays what it said
            return message
        content = message.content
        for old, new in self._options.edits:
            content = content.replace(old, new)
        return message if content == message.content else replace(message, content=content, media=())

    async def _begin(self, session: LiveSession, dialect: str) -> Counter[int]:
        """Let the run's row name what it replays. Raises Unanswered where that is the session itself."""
        options = self._options
        if session.name == options.session:
            raise Unanswered(
                f"a replay of {options.session!r} is recorded as a session of its own: "
                "give the run another name (`tap run --session NAME -- COMMAND`)",
                dialect,
            )
        about = {"replays": options.session, **({"fork_at": options.until} if options.until else {})}
        await asyncio.wrap_future(self._recorder.open_session(NewSession(name=session.name, metadata=about)))
        return Counter()

    def _steady(self, asked: Trail) -> Trail:
        """A call without what no two runs say alike."""
        conversation = _without(asked.conversation, self._volatile)
        return asked if conversation is asked.conversation else trail(conversation)

    def _nearest(self, twins: Sequence[_Stored], steady: Trail, asked: Trail) -> str:
        """What is different from the stored call that comes nearest."""
        if twins:
            count = len(twins)
            return f"the session sent it {'once' if count == 1 else f'{count} times'}, and not again"
        nearest = max(self._turns, key=lambda one: (agreement(one.trail, steady), -one.number))
        why = different(nearest.trail, steady) or "its instructions and tools"
        if isinstance(why, Difference) and why.field == "content" and why.message <= len(asked.conversation.messages):
            sent = asked.conversation.messages[why.message - 1].content
            why = replace(why, byte=self._volatile.place(sent, why.byte))
        return f"{why} (nearest is turn {nearest.number})"


def _without(conversation: Conversation, volatile: Volatile) -> Conversation:
    """A conversation without what no two runs say alike; itself where it has none."""
    changed = {
        at: replace(message, content=plain)
        for at, message in enumerate(conversation.messages)
        if message.role != "assistant" and (plain := volatile.without(message.content)) != message.content
    }
    if not changed:
        return conversation
    messages = tuple(changed.get(at, message) for at, message in enumerate(conversation.messages))
    return replace(conversation, messages=messages)


def _load(reader: Reader, options: ReserveOptions, volatile: Volatile) -> list[_Stored]:
    """The turns to answer from. Raises NotFound for what is not in the record."""
    try:
        session = reader.session(options.session)
    except UnknownSession as unknown:
        raise NotFound(str(unknown)) from unknown
    turns = [turn for turn in reader.turns(session, tokens=True) if turn.status != "open"]
    if not turns or options.until > len(turns):
        raise NotFound(f"session {options.session!r} has {len(turns)} turns, no turn {options.until or 1}")
    conversations: dict[int, list[dict[str, Any]]] = {}
    found = []
    for number, turn in enumerate(turns, 1):
        reply = reader.reply(turn) or {"role": "assistant"}
        asked = [*conversations.get(turn.parent_id or 0, ()), *reader.new_messages(turn)]
        conversations[turn.id] = [*asked, reply]
        tools = tuple(tool_from(tool) for tool in reader.tools(turn))
        conversation = _without(Conversation(tuple(_message(message) for message in asked), tools), volatile)
        images = tuple(Placed(**image) for image in reader.images(turn))
        found.append(_Stored(number, turn, trail(conversation), reply, reader.prompt_ids(turn), images))
    return found[: options.until or None]


def _message(stored: dict[str, Any]) -> Message:
    """With the media that its meaning counts."""
    media = tuple(
        Media(one["start"], one["end"], one["kind"], one["media_type"], sha256=one.get("sha256"))
        for one in stored.get("media", ())
    )
    return replace(message_from(stored), media=media)


def _key(asked: Trail) -> tuple[str, str]:
    """Equal for two calls whose conversations mean the same, tools and instructions included."""
    return asked.head, asked.after(_NOTHING)


def _asks_otherwise(stored: _Stored, call: Call) -> str | None:
    """The first sampling parameter that the harness now asks otherwise."""
    old, new = stored.turn.sampling_asked, call.sampling.asked()

    def changed() -> Iterator[str]:
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                yield f"{name}: stored {old.get(name)!r}, now {new.get(name)!r} (turn {stored.number})"

    return next(changed(), None)
