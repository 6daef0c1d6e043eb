"""What a harness changed between two calls of a conversation, in words.

A change that the rule of :mod:`addons.meaning` tolerates is noted on the turn that continues in spite of it; one that
it does not tolerate is the reason of a fork. Either names the field and shows where the text first differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from addons import meaning
from addons.conversation import Message, Tool
from addons.lineage import Trail, meant
from replay.records import DriftReason

_SHOWN = 80
"""Characters of a text that a note shows."""
_BEFORE = 20
"""Those of them before the first difference."""
_HEADER_LINE = re.compile(r"[A-Za-z][\w -]{0,40}: ")


@dataclass(frozen=True, slots=True)
class Sent:
    """What a call sent exactly: its instructions, its tools, and the texts of the messages after the instructions, None
    for assistant ones. A conversation's calls share what is the same, so that a text is held once."""

    instructions: tuple[str, ...]
    tools: tuple[Tool, ...]
    messages: tuple[str | None, ...]


def sent(trail: Trail, before: Sent | None = None) -> Sent:
    """What a call sent; sharing what is the same in the call `before`."""
    sent = trail.conversation.messages
    told = tuple(message.content for message in sent[: trail.instructions])
    tools = trail.conversation.tools
    messages = tuple(None if m.role == "assistant" else m.content for m in sent[trail.instructions :])
    if before is not None:
        told = before.instructions if told == before.instructions else told
        tools = before.tools if tools == before.tools else tools
        kept = zip(before.messages, messages, strict=False)
        messages = tuple(old if old == new else new for old, new in kept) + messages[len(before.messages) :]
    return Sent(told, tools, messages)


def noted(before: Sent, trail: Trail, messages: int) -> str | None:
    """What a call tells otherwise than the turn it continues did; None where it sent everything as it was.

    Args:
        before: what the turn's call sent.
        trail: the call's conversation.
        messages: how many of its messages the turn accounts for, its reply the last of them.
    """
    now = sent(trail, before)
    notes = []
    if before.instructions != now.instructions:
        notes.append(difference("system", "\n".join(before.instructions), "\n".join(now.instructions)))
    if before.tools != now.tools:
        notes.append(_tools(before.tools, now.tools))
    told = [(place, text) for place, text in enumerate(now.messages, trail.instructions) if place < messages]
    old = [text for text in before.messages if text is not None]
    new = [(place, text) for place, text in told if text is not None]
    if old != [text for _, text in new]:
        same = _agreement(old, [text for _, text in new])
        place, text = new[same] if same < len(new) else (messages - 1, "")
        notes.append(difference(f"messages[{place}]", old[same] if same < len(old) else "", text))
    return "; ".join(notes) or None


def other_head(before: Sent, trail: Trail) -> tuple[DriftReason, str]:
    """Why a call whose messages continue a turn does not: its instructions or tools mean something else."""
    now = sent(trail)
    old, new = "\n".join(before.instructions), "\n".join(now.instructions)
    if not instructed_otherwise(before, trail):
        return "harness_rewrote", _tools(before.tools, now.tools)
    reason: DriftReason = "volatile_header" if _only_header(old, new) else "harness_rewrote"
    return reason, difference("system", *_unlike(old, new))


def instructed_otherwise(before: Sent, trail: Trail) -> bool:
    """Whether the instructions mean something else."""
    now = (message.content for message in trail.conversation.messages[: trail.instructions])
    return "".join(map(meaning.instructed, before.instructions)) != "".join(map(meaning.instructed, now))


def rewritten(before: Sequence[Message], now: Sequence[Message], start: int) -> tuple[DriftReason, str] | None:
    """How a conversation goes on otherwise than it did; None where all that was is still there.

    Args:
        before: how it went on: messages, and the reply to them.
        now: the messages in their place, and all that follows.
        start: the place of the first of `now` in the call.
    """
    new = [(start + at, message) for at, message in enumerate(now) if meant([message])]
    for at, old in enumerate(message for message in before if meant([message])):
        if at >= len(new):
            return "harness_rewrote", difference(f"messages[{start + len(now)}] ({old.role})", _shown(old), "")
        place, other = new[at]
        if meant([old]) != meant([other]):
            reason: DriftReason = "truncated" if _is_beginning(other, old) else "harness_rewrote"
            return reason, difference(f"messages[{place}] ({other.role})", _shown(old), _shown(other))
    return None


def _is_beginning(message: Message, whole: Message) -> bool:
    """Whether the harness kept only the beginning of a reply."""
    if message.role != "assistant" or whole.role != "assistant":
        return False
    calls = zip(message.tool_calls, whole.tool_calls, strict=False)
    same = all(meaning.arguments(one.arguments) == meaning.arguments(other.arguments) for one, other in calls)
    return (
        meaning.said(whole).startswith(meaning.said(message))
        and same
        and len(message.tool_calls) <= len(whole.tool_calls)
    )


def difference(field: str, old: str, new: str) -> str:
    """`field: was '...', is '...'`, from shortly before the first difference on."""
    at = max(_agreement(old, new) - _BEFORE, 0)
    return f"{field}: was {_excerpt(old, at)}, is {_excerpt(new, at)}"


def _agreement(one: Sequence[object], other: Sequence[object]) -> int:
    """How many elements are the same from the beginning on."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _excerpt(text: str, at: int) -> str:
    if not text:
        return "absent"
    shown = text[at : at + _SHOWN]
    return f"{'…' if at else ''}{shown!r}{'…' if len(text) > at + _SHOWN else ''}"


def _shown(message: Message | None) -> str:
    if message is None:
        return ""
    calls = "".join(f" [{call.name} {call.arguments}]" for call in message.tool_calls)
    return message.content + calls or "(empty)"


def _tools(before: Sequence[Tool], now: Sequence[Tool]) -> str:
    """How two lists of tools differ."""
    old, new = ({tool.name: tool for tool in tools} for tools in (before, now))
    notes = [f"{what} {', '.join(names)}" for what, names in (
        ("added", [name for name in new if name not in old]),
        ("removed", [name for name in old if name not in new]),
    ) if names]  # fmt: skip
    for name in old.keys() & new.keys():
        if meaning.parameters(old[name].parameters) != meaning.parameters(new[name].parameters):
            notes.append(f"parameters of {name} changed")
    if notes:
        return "tools: " + ", ".join(notes)
    for name in (name for name in old if name in new):
        if old[name].description != new[name].description:
            return difference(f"tools.{name}.description", old[name].description, new[name].description)
    explained = next((name for name in old if name in new and old[name] != new[name]), None)
    return "tools: reordered" if explained is None else f"tools: descriptions in the parameters of {explained} changed"


def _only_header(old: str, new: str) -> bool:
    """Whether two texts differ only in `Name: value` lines before their first blank line."""
    (top, _, rest), (new_top, _, new_rest) = old.partition("\n\n"), new.partition("\n\n")
    changed = set(top.splitlines()) ^ set(new_top.splitlines())
    same = meaning.instructed(rest) == meaning.instructed(new_rest)
    return same and all(_HEADER_LINE.match(line) for line in changed)


def _unlike(old: str, new: str) -> tuple[str, str]:
    """Two instructions from the first line on that means something else in them."""
    lines, new_lines = old.splitlines(), new.splitlines()
    for at, (line, other) in enumerate(zip(lines, new_lines, strict=False)):
        if meaning.instructed(line) != meaning.instructed(other):
            return "\n".join(lines[at:]), "\n".join(new_lines[at:])
    return old, new
