"""What a request has otherwise than the stored one it comes nearest to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from addons import drift, meaning
from addons.conversation import Message
from addons.lineage import Trail, meant
from addons.neutral import message_json
from replay.compare import Difference, first_difference, in_text


def different(stored: Trail, now: Trail) -> Difference | str | None:
    """The first difference between two conversations, in the messages, then in the tools; None where there is none.

    What `addons.meaning` tolerates is none: where the text differs in that alone, it is passed over.
    """
    told = _instructions(stored, now)
    if told is not None:
        return told
    old, new = _telling(stored), _telling(now)
    found = first_difference([m for _, m, _ in old], [m for _, m, _ in new], _Same(old, new))
    if found is not None:
        return _placed(found, new, len(now.conversation.messages))
    if stored.head != now.head:
        return drift.other_head(drift.sent(stored), now)[1]
    return None


def agreement(stored: Trail, now: Trail) -> int:
    """How many messages, from the beginning on, mean the same."""
    old, new = _telling(stored), _telling(now)
    pairs = enumerate(zip(old, new, strict=False))
    same = next((at for at, (one, other) in pairs if one[2] != other[2]), min(len(old), len(new)))
    return same + (_instructions(stored, now) is None)


_Told = tuple[int, dict[str, Any], list[bytes]]
"""A message's place, the message, and what it means."""


class _Same:
    """Whether two messages mean the same, in spite of how they are written."""

    def __init__(self, *conversations: list[_Told]) -> None:
        self._meant = {id(message): meaning for told in conversations for _, message, meaning in told}

    def __call__(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        return self._meant[id(one)] == self._meant[id(other)]


def _telling(trail: Trail) -> list[_Told]:
    told = enumerate(trail.conversation.messages)
    return [(at, message_json(m), meant([m])) for at, m in told if at >= trail.instructions and meant([m])]


def _placed(found: Difference, new: list[_Told], messages: int) -> Difference:
    """The same with the message's place in the request, where some messages were passed over."""
    place = new[found.message - 1][0] if found.message <= len(new) else messages
    return Difference(
        message=place + 1, role=found.role, field=found.field, byte=found.byte, stored=found.stored, now=found.now
    )


def _instructions(stored: Trail, now: Trail) -> Difference | None:
    """The first line of the instructions that means something else."""
    old, new = (_told(trail) for trail in (stored, now))
    if meaning.instructed(old) == meaning.instructed(new):
        return None
    lines, new_lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    pairs = enumerate(zip(lines, new_lines, strict=False))
    at = next(
        (at for at, (one, other) in pairs if meaning.instructed(one) != meaning.instructed(other)),
        min(len(lines), len(new_lines)),
    )
    byte, was, has = in_text("".join(lines[at:]), "".join(new_lines[at:]))
    before = len("".join(new_lines[:at]).encode("utf-8", "surrogatepass"))
    return Difference(message=1, role="system", field="content", byte=before + byte, stored=was, now=has)


def _told(trail: Trail) -> str:
    messages: tuple[Message, ...] = trail.conversation.messages[: trail.instructions]
    return "\n".join(message.content for message in messages)
