"""Replies by their ids: what a later call continues instead of sending its whole conversation again.

Everything comes from the record, so it outlives the proxy. The record keeps requests and replies, not a provider's
state; that is made of them by the dialect (:class:`addons.dialects.continuing.Continuing`) when it is asked for, and
kept in a bounded cache. Only what sampled nothing (Responses' `generate: false`) is no turn, and lives in memory alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, cast

from addons.body import mended
from addons.conversation import Finish, Reply, Usage
from addons.dialects.base import Dialect, Target
from addons.dialects.continuing import LookUp, State, nothing_stored
from addons.neutral import message_from
from replay.reader import Reader
from replay.schema import Turn

KEEP = 1024
"""Replies whose state is kept in memory; an older one is made from the record again."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """The state after a reply, and the session the reply was given to: None for a caller without a name."""

    session: str | None
    state: State


class StoredReplies:
    """Looks replies up. A session with a name sees its own only."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: OrderedDict[str, _Stored] = OrderedDict()
        self._lock = threading.RLock()  # requests are read in threads

    def look_up(self, dialect: Dialect, session: str | None) -> LookUp:
        """What a caller's request of `dialect` may look replies up with. `session` is None for one without a name."""
        if dialect.continuing is None:
            return nothing_stored
        return lambda reply_id: self._find(dialect, reply_id, session)

    def remember(self, dialect: Dialect, reply_id: str, body: dict[str, Any], session: str | None) -> None:
        """Keep a reply that sampled nothing, and so is in no record."""
        assert dialect.continuing is not None, dialect.name
        state = dialect.continuing.after(self.look_up(dialect, session), body, reply_id, None)
        with self._lock:
            self._keep(reply_id, _Stored(session, state))

    def whole(self, dialect: Dialect, reply_id: str, session: str | None) -> bytes | None:
        """A reply once more, as a call that does not stream has it.

        None where the caller has no such reply, or did not want it kept (`store`).
        """
        if self._find(dialect, reply_id, session) is None or (turn := self._turn(dialect, reply_id)) is None:
            return None
        body = mended(self._reader.request(turn))
        call = dialect.read(body, Target(socket="type" in body), self.look_up(dialect, session))
        if not call.options.get("store"):
            return None
        emitter = dialect.emitter(replace(call, stream=False), reply_id, int(turn.received_at))
        return emitter.whole(self._reply(turn))

    def clear(self) -> None:
        """Forget everything; the record still knows all that was sampled."""
        with self._lock:
            self._kept.clear()

    def _find(self, dialect: Dialect, reply_id: str, session: str | None) -> State | None:
        with self._lock:
            return self._found(dialect, reply_id, session)

    def _found(self, dialect: Dialect, reply_id: str, session: str | None) -> State | None:
        continuing = dialect.continuing
        assert continuing is not None, dialect.name
        missing: list[tuple[str, dict[str, Any], Turn]] = []
        wanted: str | None = reply_id
        while wanted is not None and wanted not in self._kept:
            if (turn := self._turn(dialect, wanted)) is None:
                return None
            body = mended(self._reader.request(turn))
            missing.append((wanted, body, turn))
            wanted = continuing.previous(body)
        for found, body, turn in reversed(missing):
            # Whose they are was asked when the call came.
            state = continuing.after(self.look_up(dialect, None), body, found, self._reply(turn))
            self._keep(found, _Stored(self._reader.session_name(turn.session_id), state))
        kept = self._kept[reply_id]
        if session is not None and kept.session not in (None, session):
            return None
        self._kept.move_to_end(reply_id)
        return kept.state

    def _turn(self, dialect: Dialect, reply_id: str) -> Turn | None:
        turn = self._reader.turn_by_reply(reply_id)
        return turn if turn is not None and (turn.status, turn.dialect) == ("complete", dialect.name) else None

    def _reply(self, turn: Turn) -> Reply:
        message = message_from(self._reader.reply(turn) or {"role": "assistant"})
        used, finish = turn.usage or {}, cast(Finish, turn.finish)
        usage = Usage(turn.prompt_length, turn.n_sampled, used.get("cached", 0), used.get("reasoning", 0))
        return Reply(message, finish, usage, turn.stop_sequence)

    def _keep(self, reply_id: str, stored: _Stored) -> None:
        self._kept[reply_id] = stored
        while len(self._kept) > KEEP:
            self._kept.popitem(last=False)
