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
class LiveSession:
    """A session that calls. `openings` are those of its roots so far: what its conversations began with."""

    id: int
    name: str
    openings: set[str]
    undelivered: OrderedDict[str, LiveTurn] = field(default_factory=OrderedDict)
    """Digest of a request body -> the turn made of it, until its reply was delivered."""
    offers_tools: bool = False
    """Some call of the session offered tools."""

    def expect_delivery(self, body_digest: str, turn: LiveTurn) -> None:
        """Remember a turn by its request."""
        self.undelivered[body_digest] = turn
        while len(self.undelivered) > KEEP_BODIES:
            self.undelivered.popitem(last=False)

    def delivered(self, turn: LiveTurn) -> None:
        """The reply of a turn arrived: the same body again is a new call, not a retry."""
        for digest in [d for d, t in self.undelivered.items() if t is turn]:
            del self.undelivered[digest]


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
        live = self._by_name.setdefault(name, LiveSession(session_id, name, set(self._reader.openings(session_id))))
        while len(self._by_name) > KEEP_SESSIONS:
            self._by_name.popitem(last=False)
        return live


def _from_hint(hint: str | None) -> str | None:
    """A session name from a harness's own: readable, safe in a URL, and distinct even where it was cut."""
    if hint is None:
        return None
    kind, _, value = hint.partition(":")
    digest = hashlib.sha256(hint.encode()).hexdigest()[:8]
    safe = "".join(c if (c.isalnum() and c.isascii()) or c in "._-" else "-" for c in value)[:80]
    return f"{kind.removeprefix('x-')}.{safe}.{digest}"
