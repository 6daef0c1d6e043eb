"""Responses by their ids: what `previous_response_id` and `item_reference` name, from our own record.

The record keeps requests and replies, not the provider's items; they are made again when asked for. A response
that was only warmed up (`generate: false`) sampled nothing and is no turn: it lives in memory alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from addons.contexts import message_from
from addons.conversation import Call, Reply, Usage
from addons.dialects import responses
from replay.reader import Reader
from replay.schema import Turn

KEEP = 1024
"""Responses whose items are kept in memory; an older one is read from the record again."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A response: the session it belongs to, and all its conversation."""

    session: str | None
    items: list[Any]


class StoredResponses:
    """Looks responses up. A session with a name sees its own only."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: OrderedDict[str, _Stored] = OrderedDict()

    def read(self, body: dict[str, Any], session: str | None, *, counting: bool = False) -> Call:
        """Read a request with all it continues. `session` is the caller's, None for one without a name.

        Raises:
            BadRequest: as the dialect's `read`; or an unknown `previous_response_id`, in the provider's words.
        """
        previous = _previous(body)
        before = None if previous is None else self.items(previous, session)
        references: dict[str, Any] = {}
        for item in responses.item_references(body):
            owner = responses.response_of(item)
            if owner in self._kept or self._reader.turn_by_reply(owner) is not None:
                references |= {i["id"]: i for i in self.items(owner, session) if i.get("id") == item}
        read = responses.read_count if counting else responses.read
        return read(body, before, references)

    def items(self, reply_id: str, session: str | None) -> list[Any]:
        """A response's whole conversation: what it continued, its input, and its output.

        Raises:
            BadRequest: no such response here, or not this session's.
        """
        missing: list[tuple[str, str, dict[str, Any], Turn]] = []
        wanted: str | None = reply_id
        while wanted is not None and wanted not in self._kept:
            turn = self._reader.turn_by_reply(wanted)
            if turn is None or turn.reply is None:
                raise responses.previous_response_not_found(reply_id)
            body = self._reader.request(turn)
            missing.append((wanted, self._reader.session_name(turn.session_id), body, turn))
            wanted = _previous(body)
        for found, owner, body, turn in reversed(missing):
            before = self._kept[_previous(body) or ""].items if _previous(body) else []
            stored = message_from(self._reader.reply(turn) or {"role": "assistant"})
            reply = Reply(stored, "stop", Usage(turn.prompt_length, turn.n_sampled))
            output = responses.output_items(responses.read(body, before), found, reply)
            self._keep(found, _Stored(owner, responses.joined(before, body, output)))
        kept = self._kept[reply_id]
        if session is not None and kept.session not in (None, session):
            raise responses.previous_response_not_found(reply_id)
        self._kept.move_to_end(reply_id)
        return kept.items

    def remember(self, reply_id: str, body: dict[str, Any], output: Sequence[Any], session: str | None) -> None:
        """Keep a response that is in no record."""
        previous = _previous(body)
        before = [] if previous is None else self.items(previous, session)
        self._keep(reply_id, _Stored(session, responses.joined(before, body, output)))

    def clear(self) -> None:
        """Forget everything; the record still knows all but what was only warmed up."""
        self._kept.clear()

    def _keep(self, reply_id: str, stored: _Stored) -> None:
        self._kept[reply_id] = stored
        while len(self._kept) > KEEP:
            self._kept.popitem(last=False)


def _previous(body: dict[str, Any]) -> str | None:
    previous = body.get("previous_response_id")
    return previous if isinstance(previous, str) and previous else None
