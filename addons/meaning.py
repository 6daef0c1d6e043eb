"""What a conversation means, as stable bytes: two that mean the same have the same.

Harnesses send their history again with every call, and never quite as it was. What they do to it falls into three
kinds, and only the last one makes it another conversation.

Writing it differently: no meaning at all.
    White space; the order of a JSON object's keys, `1.0` for `1`, a `null` member for an absent one, escapes; null or
    empty arguments; call ids (their order counts); one message of a role cut in two; `developer` for `system`;
    reasoning, which providers sign, harnesses drop or move into the text as `<think>`; the order of the tools.

Telling of the moment: tolerated within a conversation. The model keeps the text it saw, and the turn's `drift_detail`
says what is different now.
    - in the instructions (the system messages at the beginning): header lines (`x-...: ...`), dates, times and other
      numbers, and what a tag, a heading or a label names as about the environment, git, the date, the working
      directory, open files and the like: all up to the tag's end, the next heading, the next blank line;
    - in later messages: blocks about the environment or the session, and `<system-reminder>`s. A message of nothing
      else may come and go;
    - descriptions, titles, examples and defaults of tools and of their parameters.

Everything else is meaning, and forks: other instructions, a tool more or less or with other parameters, an edited
message, result or reply. Such a call gets a prompt of its own, since the model must see what the harness now says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from addons.conversation import Message, Tool

_MOMENT = (
    r"env|environment|git|date|today|time|clock|cwd|directory|directories|workspace|branch|commits?|worktree|"
    r"open[ _-]?(?:files|tabs)|visible[ _-]?files|file[ _-]?tree|context[ _-]?window|token[ _-]?usage"
)
_TAG = re.compile(
    rf"<((?:[\w-]+[_-])?(?:{_MOMENT}|system-reminder|session[_-]context)(?:[_-][\w-]+)?)(?:\s[^<>]*)?>", re.IGNORECASE
)
_HEADER = re.compile(r"(?:x-[\w-]+:[^\n]*\n+)+", re.IGNORECASE)
_HEADING = re.compile(rf"#+[^\n]*\b(?:{_MOMENT})\b", re.IGNORECASE)
_LABEL = re.compile(rf"[\W_]*(?:[\w']+\s+){{0,5}}(?:(?:{_MOMENT})|gitstatus)\b[^:.!?]{{0,40}}:", re.IGNORECASE)
_NAMES = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|october|"
    r"november|december|(?:mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec)(?=[\s,.\d])|"
    r"am|pm|st|nd|rd|th)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b|\d+(?:st|nd|rd|th)?", re.IGNORECASE)
_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
_ANNOTATIONS = frozenset({"description", "title", "examples", "default", "$comment", "$schema"})
_TOO_DEEP = "nested too deeply"
_NOTHING: tuple[Any, ...] = (None, {})


def squeezed(text: str) -> str:
    """Without white space."""
    return "".join(text.split())


def said(message: Message) -> str:
    """A message's text for comparing; of a user's it may be empty, where it only told of the moment."""
    if message.role == "assistant":
        return squeezed(_THOUGHT.sub("", message.content, count=1))
    return squeezed(without_blocks(message.content))


def without_blocks(text: str) -> str:
    """Without the tagged blocks that tell of the moment. Linear in the text, whatever is in it."""
    if "<" not in text:
        return text
    kept: list[str] = []
    unclosed: set[str] = set()
    at = 0
    while (tag := _TAG.search(text, at)) is not None:
        name = tag[1]
        end = -1 if name in unclosed else text.find(f"</{name}>", tag.end())
        if end < 0:
            unclosed.add(name)
            kept.append(text[at : tag.end()])
            at = tag.end()
        else:
            kept.append(text[at : tag.start()])
            at = end + len(name) + 3
    return "".join((*kept, text[at:]))


@lru_cache(maxsize=128)
def instructed(text: str) -> str:
    """Instructions for comparing: without what tells of the moment."""
    text = without_blocks(text)
    if header := _HEADER.match(text):
        text = text[header.end() :]
    kept: list[str] = []
    section = paragraph = False
    for line in text.splitlines():
        if line.startswith("#"):
            section, paragraph = _HEADING.match(line[:200]) is not None, False
        elif not line.strip():
            paragraph = False
        else:
            paragraph = paragraph or _LABEL.match(line[:200]) is not None
        if not section and not paragraph:
            kept.append(_NUMBER.sub("0", _NAMES.sub("", line)))
    return squeezed("\n".join(kept))


def arguments(text: str) -> Any:
    """A call's arguments as a value: numbers that are equal are the same, members that are null are none."""
    if not text.strip():
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return squeezed(text)
    try:
        plain = _plain(value)
    except RecursionError:
        return squeezed(text)
    return {} if plain in _NOTHING else plain


def parameters(schema: Any) -> Any:
    """A tool's parameters without what only explains them."""
    try:
        return _unexplained(schema or {})
    except RecursionError:
        return _TOO_DEEP


def head(instructions: Sequence[Message], tools: Sequence[Tool]) -> bytes:
    """Instructions and tools."""
    told = "".join(instructed(message.content) for message in instructions)
    return dumps([told, sorted(([tool.name, parameters(tool.parameters)] for tool in tools), key=lambda t: str(t[0]))])


def dumps(value: Any) -> bytes:
    """Stable JSON; what is nested too deeply to be written, and so to be rendered, is all the same."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        try:
            return json.dumps(value, sort_keys=True).encode()
        except (RecursionError, ValueError):
            return _TOO_DEEP.encode()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    return value


def _unexplained(value: Any, *, named: bool = False) -> Any:
    """`named`: its keys are names of the harness's own (properties), not words of JSON Schema."""
    if isinstance(value, dict):
        return {
            key: _unexplained(member, named=not named and key in ("properties", "$defs", "definitions"))
            for key, member in value.items()
            if named or key not in _ANNOTATIONS
        }
    if isinstance(value, list):
        return [_unexplained(member) for member in value]
    return value
