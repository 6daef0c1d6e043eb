"""Responses by their ids: what `previous_response_id` and `item_reference` name, from our own record.

The record keeps requests and replies, not the provider's items; they are made again when asked for. A response
that was only warmed up (`generate: false`) sampled nothing and is no turn: it lives in memory alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from addons.contexts import message_from
from addons.conversation import Call, Reply, Usage
from addons.dialects import responses
from replay.reader import Reader

KEEP = 1024
"""Responses whose items are kept in memory; an older one is read from the record again."""


class StoredResponses:
    """Looks responses up."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._items: OrderedDict[str, list[Any]] = OrderedDict()

    def read(self, body: dict[str, Any], *, counting: bool = False) -> Call:
        """Read a request with all it continues.

        Raises:
            BadRequest: as the dialect's `read`; or an unknown `previous_response_id`, in the provider's words.
        """
        previous = body.get("previous_response_id")
        before = self.items(previous) if isinstance(previous, str) and previous else None
        references: dict[str, Any] = {}
        for item in responses.item_references(body):
            owner = responses.response_of(item)
            if self._known(owner):
                references |= {i["id"]: i for i in self.items(owner) if i.get("id") == item}
        read = responses.read_count if counting else responses.read
        return read(body, before, references)

    def items(self, reply_id: str) -> list[Any]:
        """A response's whole conversation: what it continued, its input, and its output.

        Raises:
            BadRequest: no such response here.
        """
        if (kept := self._items.get(reply_id)) is not None:
            self._items.move_to_end(reply_id)
            return kept
        turn = self._reader.turn_by_reply(reply_id)
        if turn is None or (stored := self._reader.reply(turn)) is None:
            raise responses.previous_response_not_found(reply_id)
        body = self._reader.request(turn)
        call = self.read(body)
        reply = Reply(message_from(stored), "stop", Usage(turn.prompt_length, turn.n_sampled))
        return self.remember(reply_id, body, responses.output_items(call, reply_id, reply))

    def remember(self, reply_id: str, body: dict[str, Any], output: Sequence[Any]) -> list[Any]:
        """Keep a response's items."""
        previous = body.get("previous_response_id")
        before = self.items(previous) if isinstance(previous, str) and previous else []
        self._items[reply_id] = responses.joined(before, body, output)
        while len(self._items) > KEEP:
            self._items.popitem(last=False)
        return self._items[reply_id]

    def clear(self) -> None:
        """Forget everything; the record still knows all but what was only warmed up."""
        self._items.clear()

    def _known(self, reply_id: str) -> bool:
        return reply_id in self._items or self._reader.turn_by_reply(reply_id) is not None
