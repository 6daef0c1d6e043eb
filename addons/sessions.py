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
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from addons.caller import Caller
from addons.contexts import Contexts
from addons.lineage import Prefix
from replay.reader import Reader
from replay.records import NewSession
from replay.writer import Recorder

if TYPE_CHECKING:
    from addons.turn import LiveTurn

KEEP_SESSIONS = 10_000
"""Sessions kept in memory; an older one costs a few reads when it calls again."""
KEEP_BODIES = 64
"""Undelivered requests of one session that a retry can be matched to."""


@dataclass(slots=True)
class Attempt:
    """A call whose reply was not delivered yet. `turn` is None once there is nothing left to deliver."""

    turn_id: int
    turn: LiveTurn | None


@dataclass(slots=True)
class LiveSession:
    """A session that calls. `openings` are those of its roots so far: what its conversations began with."""

    id: int
    name: str
    openings: set[str]
    offers_tools: bool = False
    """Some call of the session offered tools."""
    placing: asyncio.Lock = field(default_factory=asyncio.Lock)
    undelivered: OrderedDict[str, Attempt] = field(default_factory=OrderedDict)
    """By what a retry has in common with the call."""

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
        self._contexts = contexts
        self._by_name: OrderedDict[str, LiveSession] = OrderedDict()

    async def resolve(self, caller: Caller, hint: str | None, candidates: list[Prefix]) -> LiveSession:
        """The session of a call. `hint` is the conversation's name inside the body, if any."""
        name = caller.session or _from_hint(caller.hint or hint)
        if name is None and (known := self._contexts.session_of(candidates)) is not None:
            name = self._reader.session_name(known)
        if name is None:
            name = f"anon-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        return await self._open(name, caller)

    def known(self, caller: Caller) -> int | None:
        """The id of a session that called before and can be told without its conversation."""
        name = caller.session or _from_hint(caller.hint)
        live = None if name is None else self._by_name.get(name)
        return None if live is None else live.id

    async def _open(self, name: str, caller: Caller) -> LiveSession:
        if (live := self._by_name.get(name)) is not None:
            self._by_name.move_to_end(name)
            return live
        row = NewSession(name=name, harness=caller.harness, harness_version=caller.harness_version)
        session_id = await asyncio.wrap_future(self._recorder.open_session(row))
        openings = self._reader.openings(session_id)
        # Of a session that called before we only know that; agents offer tools, so a root without is a side call.
        live = self._by_name.setdefault(name, LiveSession(session_id, name, openings, bool(openings)))
        while len(self._by_name) > KEEP_SESSIONS:
            self._by_name.popitem(last=False)
        return live


def _from_hint(hint: str | None) -> str | None:
    """A session name from a harness's own: readable, safe in a URL, and distinct even where it was cut."""
    if hint is None:
        return None
    kind, _, value = hint.partition(":")
    digest = hashlib.sha256(hint.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    safe = "".join(c if (c.isalnum() and c.isascii()) or c in "._-" else "-" for c in value)[:80]
    return f"{kind.removeprefix('x-')}.{safe}.{digest}"
