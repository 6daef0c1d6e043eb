"""From a caller to its session's row.

With a proxy user the name is given. Without one, a session is what the harness itself calls a conversation (a
header or a field it sends), else the session whose stored turns this call continues, else a new one: a call
that continues nothing may be anybody's.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from addons import meaning
from addons.budget import Budget
from addons.caller import Caller
from addons.contexts import Contexts
from addons.conversation import Message
from addons.lineage import Trail
from addons.neutral import message_from
from addons.purposes import Known
from replay.ancestry import Ancestry
from replay.reader import Reader
from replay.records import NewSession, Purpose
from replay.schema import Session
from replay.seeds import seed_of
from replay.writer import Recorder

if TYPE_CHECKING:
    from addons.turn import LiveTurn

KEEP_SESSIONS = 10_000
"""Sessions kept in memory; an older one costs a few reads when it calls again."""
KEEP_BODIES = 64
"""Undelivered requests of one session that a retry can be matched to."""
KEEP_ROOTS = 64
"""Conversations of one session's agent by which a further one is told to be its."""
KEEP_SUMMARIES = 4
"""Summaries of one session that a later conversation may have been made from."""
_LONG = 400
"""Characters from which on any reply of the agent's may be such a summary, whatever it was asked for."""
_TELLING_LINE = 16
"""Characters from which on a line of a summary is not in another text by chance."""


@dataclass(slots=True)
class Attempt:
    """A call whose reply was not delivered yet. `turn` is None once there is nothing left to deliver."""

    turn_id: int
    turn: LiveTurn | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A reply that a later conversation may have been made from. `asked` says that it was asked for as a summary."""

    text: str
    asked: bool


@dataclass(slots=True)
class LiveSession:
    """A session that calls, and what its calls so far tell of the next."""

    id: int
    name: str
    resumed: bool = False
    """It called before this process knew it."""
    heads: OrderedDict[int, str] = field(default_factory=OrderedDict)
    """The instructions and tools, digested, with which the latest conversations of its agent began; by their root."""
    toolless: set[int] = field(default_factory=set)
    """Those roots that have no tools and were not continued, while no call had tools: side calls, it may be."""
    offers_tools: bool = False
    """Some conversation has tools."""
    agent: Caller | None = None
    """Who called first for its agent: the program that runs the session."""
    summaries: deque[Summary] = field(default_factory=lambda: deque(maxlen=KEEP_SUMMARIES))
    budget: Budget = field(default_factory=Budget)
    seed: int | None = None
    placing: asyncio.Lock = field(default_factory=asyncio.Lock)
    undelivered: OrderedDict[str, Attempt] = field(default_factory=OrderedDict)
    """By what a retry has in common with the call."""

    def known(self, trail: Trail) -> Known:
        """What its earlier calls tell of one."""
        doubtful = self.toolless if trail.conversation.tools else ()
        heads = {head for root, head in self.heads.items() if root not in doubtful}
        return Known(bool(heads), trail.head in heads, self.offers_tools, self.agent if heads else None)

    def opened(self, turn_id: int, purpose: Purpose, trail: Trail, parent_id: int | None, caller: Caller) -> list[int]:
        """Learn from a call that was placed; gives the roots that now turn out to have been side calls."""
        tools = bool(trail.conversation.tools)
        side_calls: list[int] = []
        if parent_id is not None:
            self.toolless.discard(parent_id)  # somebody goes on with it: a conversation
        if tools and purpose in ("main", "subagent"):
            side_calls, self.toolless, self.offers_tools = sorted(self.toolless), set(), True
            for root in side_calls:
                del self.heads[root]
        if purpose == "main" and parent_id is None:
            self.agent = caller if not self.heads else self.agent or caller
            self.heads[turn_id] = trail.head
            if not tools and not self.offers_tools and caller.kind is None:
                self.toolless.add(turn_id)
            while len(self.heads) > KEEP_ROOTS:
                self.toolless.discard(self.heads.popitem(last=False)[0])
        return side_calls

    def replied(self, purpose: Purpose, reply: Message) -> None:
        """Learn from a reply: a later conversation may be made from a summary, or from a long text like one."""
        text = reply.content
        if purpose == "compaction" or (purpose == "main" and not reply.tool_calls and len(text) >= _LONG):
            self.summaries.append(Summary(text, purpose == "compaction"))

    def quoted(self, trail: Trail) -> bool:
        """Whether a conversation was made from a summary that the session has: begins with a third of its lines.

        A harness may keep a summary that it asked for as the reply that it was: the first of the new conversation.
        """
        if not self.summaries:
            return False
        messages = trail.conversation.messages
        first = next((at for at, m in enumerate(messages) if m.role in ("assistant", "tool")), len(messages))
        text = meaning.squeezed("\n".join(message.content for message in messages[:first]))
        reply = meaning.squeezed(messages[first].content) if first < len(messages) else ""
        return any(_quotes(text + reply if summary.asked else text, summary.text) for summary in self.summaries)

    def expect_delivery(self, key: str, turn: LiveTurn) -> None:
        """Remember a turn by its request."""
        self.undelivered[key] = Attempt(turn.id, turn)
        while len(self.undelivered) > KEEP_BODIES:
            self.undelivered.popitem(last=False)

    def earlier(self, key: str) -> int | None:
        """The turn of an earlier try of the same call that was never delivered."""
        attempt = self.undelivered.get(key)
        return None if attempt is None else attempt.turn_id

    def joinable(self, key: str) -> LiveTurn | None:
        """The same, if it still has a reply to give, or will have."""
        attempt = self.undelivered.get(key)
        turn = None if attempt is None else attempt.turn
        return None if turn is None or turn.dropped else turn

    def settle(self, turn: LiveTurn) -> None:
        """A turn is over. One that failed or was aborted has nothing to deliver: only its id is kept."""
        for attempt in self.undelivered.values():
            if attempt.turn is turn and (turn.error is not None or turn.dropped):
                attempt.turn = None

    def delivered(self, turn: LiveTurn) -> None:
        """The reply of a turn arrived: the same body again is a new call, not a retry."""
        for key in [k for k, attempt in self.undelivered.items() if attempt.turn_id == turn.id]:
            del self.undelivered[key]


class Sessions:
    """Opens each session's row once."""

    def __init__(self, recorder: Recorder, reader: Reader, contexts: Contexts) -> None:
        self._recorder = recorder
        self._reader = reader
        self._ancestry = Ancestry(reader.store)
        self._contexts = contexts
        self._by_name: OrderedDict[str, LiveSession] = OrderedDict()

    async def resolve(self, caller: Caller, trail: Trail) -> LiveSession:
        """The session of a call."""
        name = caller.session or _from_hint(caller.hint)
        if name is None and (known := await self._contexts.session_of(trail)) is not None:
            name = self._reader.session_name(known)
        if name is None:
            name = f"anon-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        return await self._open(name, caller)

    def known(self, caller: Caller) -> int | None:
        """The id of a session that called before and can be told without its conversation."""
        name = caller.session or _from_hint(caller.hint)
        live = None if name is None else self._by_name.get(name)
        return None if live is None else live.id

    def earlier(self, session: LiveSession, key: str, body_digest: str) -> int | None:
        """The turn of an earlier try of the same call that was never delivered, by this process or one before it."""
        if key in session.undelivered or not session.resumed:
            return session.earlier(key)
        return self._ancestry.undelivered(session.id, body_digest)

    async def _open(self, name: str, caller: Caller) -> LiveSession:
        if (live := self._by_name.get(name)) is not None:
            self._by_name.move_to_end(name)
            return live
        row = NewSession(name=name, harness=caller.harness, harness_version=caller.harness_version)
        session_id = await asyncio.wrap_future(self._recorder.open_session(row))
        live = self._by_name.setdefault(name, self._recalled(session_id, name))
        while len(self._by_name) > KEEP_SESSIONS:
            self._by_name.popitem(last=False)
        return live

    def _recalled(self, session_id: int, name: str) -> LiveSession:
        """What the record knows of a session that this process does not."""
        roots = self._ancestry.roots(session_id)
        mains = [turn for turn in roots if turn.purpose == "main"]
        live = LiveSession(session_id, name, resumed=self._ancestry.has_turns(session_id))
        row = self._reader.session(name)
        live.seed = seed_of(row.meta)
        live.budget = self._budget(row, counted=live.seed is not None)
        live.offers_tools = any(turn.tools is not None for turn in roots)
        live.heads = OrderedDict((turn.id, self._contexts.head_of(turn)) for turn in reversed(mains[:KEEP_SUMMARIES]))
        if roots:
            for turn in reversed(self._ancestry.summaries(session_id, KEEP_SUMMARIES)):
                live.replied("compaction", message_from(self._reader.reply(turn) or {"role": "assistant"}))
        if not live.offers_tools:
            live.toolless = {root for root in live.heads if not self._ancestry.children(root)}
        return live

    def _budget(self, session: Session, *, counted: bool) -> Budget:
        budget = Budget.of(session.meta)
        if budget.limited or counted:
            turns = [turn for turn in self._reader.turns(session) if turn.replays is None]
            budget.turns = sum(turn.status != "failed" or turn.n_sampled > 0 for turn in turns)
            budget.tokens = sum(turn.n_sampled for turn in turns)
        return budget


def _quotes(text: str, summary: str) -> bool:
    lines = [squeezed for line in summary.splitlines() if (squeezed := meaning.squeezed(line))]
    telling = [line for line in lines if len(line) >= _TELLING_LINE]
    return bool(telling) and 3 * sum(line in text for line in telling) >= len(telling)


def _from_hint(hint: str | None) -> str | None:
    """A session name from a harness's own: readable, safe in a URL, and distinct even where it was cut."""
    if hint is None:
        return None
    kind, _, value = hint.partition(":")
    digest = hashlib.sha256(hint.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    safe = "".join(c if (c.isalnum() and c.isascii()) or c in "._-" else "-" for c in value)[:80]
    return f"{kind.removeprefix('x-')}.{safe}.{digest}"
