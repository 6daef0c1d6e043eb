"""Replies at random, and how they are read, for the tests of formats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from hypothesis import strategies as st

from addons.conversation import Delta, Tool, ToolCallDelta
from addons.replies import ParsedReply, ReplyParser
from tests.addons.parsers.families import TOOLS, Model, Read


def read(
    model: Model,
    ids: Sequence[int],
    *,
    cuts: Sequence[int] | None = None,
    finish: Literal["stop", "length"] = "stop",
    tools: Sequence[Tool] = TOOLS,
) -> tuple[list[Delta], ParsedReply]:
    """Read a reply, in chunks that end at `cuts`, by default an id at a time."""
    ends = range(len(ids) + 1) if cuts is None else [*sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    parser = ReplyParser(model.choice, model.prompt, tools)
    deltas: list[Delta] = []
    start = 0
    for end in ends:
        deltas += parser.feed(ids[start:end])
        start = end
    last, reply = parser.finish(finish)
    return [*deltas, *last], reply


def content(reply: ParsedReply) -> Read:
    message = reply.message
    calls = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return message.content.strip(), message.reasoning.strip(), calls


def joined(deltas: Sequence[Delta]) -> list[tuple[Any, ...]]:
    """Deltas without the accident of where they were cut, and without the ids of calls."""
    out: list[tuple[Any, ...]] = []
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            out.append(("call", delta.index, delta.name, delta.arguments))
        elif out and out[-1][0] is type(delta):
            out[-1] = (type(delta), out[-1][1] + delta.text)
        else:
            out.append((type(delta), delta.text))
    return out


_LOOKS = ["<|im_end|>", "<|end|>", "<｜tool▁call▁end｜>", "<|tool_call_end|>", "<tool_call|>", "[TOOL_CALLS]", "</s>"]
_words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_pieces = st.sampled_from(
    ["a, b", "it's", '"q"', "{x}", "]", "\\n", "\\d", "\n", "한국어", "🚀", "#", "```", "<b>", "=", *_LOOKS]
)
_strings = st.lists(_words | _pieces, max_size=4).map("".join)
_numbers = st.integers(-9, 9**18) | st.floats(allow_nan=False, allow_infinity=False)
_keys = st.sampled_from(["command", "path", "-n", "from", "a.b", "오"])


def _values(keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | _numbers | _strings,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
        max_leaves=4,
    )


def _own(model: Model, value: Any) -> bool:
    """Whether the value has a delimiter of the family that is no special token, which nothing can tell from data."""
    text = json.dumps(value, ensure_ascii=False)
    plain = [*model.family.markup, "<think>", "</think>", *(['<|"|>'] if model.family.parser == "gemma4" else [])]
    return any(mark in text for mark in plain)


def _arguments(model: Model) -> st.SearchStrategy[dict[str, Any]]:
    if model.family.typed:
        bare = _strings.filter(lambda text: text == text.strip())
        nested = _values(st.text(max_size=3))
        return st.fixed_dictionaries(
            {},
            optional={
                "text": bare,
                "-n": st.integers(-(9**18), 9**18),
                "flag": st.booleans(),
                "data": st.dictionaries(st.text(max_size=3), nested, max_size=2),
                "items": st.lists(nested, max_size=2),
            },
        )
    keys = _keys if model.family.words else _keys | st.text(max_size=3)
    return st.dictionaries(keys, _values(keys), max_size=3)


_spoken = st.sampled_from(
    ["", "I look.", "a {b} [c], 'd'", "한국어\n\nüber", "so \n```py\nx = {1}\n```", "🧑‍🚀", "end <|im_end|> of"]
)


def replies(model: Model) -> st.SearchStrategy[Read]:
    family = model.family
    names = st.sampled_from([tool.name for tool in TOOLS])
    calls = st.lists(st.tuples(names, _arguments(model)), max_size=family.most_calls)
    reasoning = _spoken if family.reasons else st.just("")

    def possible(reply: Read) -> bool:
        text, thought, made = reply
        if made and text and not family.text_with_calls:
            return False
        return not _own(model, [text, thought, made])

    return st.tuples(_spoken, reasoning, calls).filter(possible)
