"""Every format at random: what was meant is what is read, cut anywhere, and nothing else ever runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addons.conversation import Delta, ReasoningDelta, TextDelta, Tool, ToolCallDelta
from addons.replies import ParsedReply, ReplyParser
from tests.addons.kit import said
from tests.addons.parsers.families import FAMILIES, TOOLS, Call, Model, Read, make

RANDOM = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    made: dict[str, Model] = {}

    def model(name: str) -> Model:
        if name not in made:
            made[name] = make(tmp_path_factory.mktemp("family"), FAMILIES[name])
        return made[name]

    return model


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, models: Callable[[str], Model]) -> Model:
    return models(request.param)


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


# What a model may say.

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


def _replies(model: Model) -> st.SearchStrategy[Read]:
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


@RANDOM
@given(data=st.data())
def test_what_was_meant_is_what_is_read(model: Model, data: st.DataObject) -> None:
    text, reasoning, calls = data.draw(_replies(model))
    ids = model.sampled(text, reasoning, calls)
    deltas, reply = read(model, ids)
    assert said(deltas) == reply.message
    assert content(reply) == (text, reasoning, calls)
    assert not reply.malformed
    assert reply.finish == ("tool_calls" if calls else "stop")
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))
    assert joined(read(model, ids, cuts=cuts)[0]) == joined(deltas)


@RANDOM
@given(data=st.data())
def test_the_library_reads_the_same(model: Model, data: st.DataObject) -> None:
    if model.family.oracle is None:
        pytest.skip("no library here reads this form: see test_vllm.py")
    text, reasoning, calls = data.draw(_replies(model))
    ids = model.sampled(text, reasoning, calls)
    theirs = model.read_by_library(ids)
    assert content(read(model, ids)[1]) == theirs


@RANDOM
@given(data=st.data())
def test_cut_off_anywhere_only_whole_calls_are_calls(model: Model, data: st.DataObject) -> None:
    text, reasoning, calls = data.draw(_replies(model))
    ids = model.sampled(text, reasoning, calls)
    upto = data.draw(st.integers(0, len(ids)))
    deltas, reply = read(model, ids[:upto], finish="length")
    assert said(deltas) == reply.message
    got = content(reply)[2]
    assert got == calls[: len(got)]
    whole = joined(read(model, ids)[0])
    called = [delta for delta in whole if delta[0] == "call"]
    assert [delta for delta in joined(deltas) if delta[0] == "call"] == called[: 2 * len(got)]


@RANDOM
@given(data=st.data())
def test_whatever_is_sampled(model: Model, data: st.DataObject) -> None:
    """Ids at random, and good replies with ids dropped, doubled and moved: nothing raises, no half call runs."""
    ids = model.sampled(*data.draw(_replies(model)))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(ids)))
        other = data.draw(st.integers(0, model.files.tokenizer.vocab_size + 40))
        ids = data.draw(st.sampled_from([ids[:at] + ids[at + 1 :], [*ids[:at], other, *ids[at:]], ids[at:] + ids[:at]]))
    finish: Any = data.draw(st.sampled_from(["stop", "length"]))
    deltas, reply = read(model, ids, finish=finish)
    assert said(deltas) == reply.message
    assert all(delta.text for delta in deltas if isinstance(delta, TextDelta | ReasoningDelta))
    assert all(isinstance(json.loads(call.arguments), dict) and call.name for call in reply.message.tool_calls)
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))
    again, same = read(model, ids, cuts=cuts, finish=finish)
    assert joined(again) == joined(deltas)
    assert (same.finish, same.malformed) == (reply.finish, reply.malformed)
    str(reply.message).encode()


def test_without_tools_a_call_is_text(model: Model) -> None:
    ids = model.sampled("", "", [("bash", {"text": "ls"})])
    _, reply = read(model, ids, tools=())
    assert reply.message.tool_calls == ()
    assert model.family.marker.strip() in reply.message.content
    assert not reply.malformed


def test_text_and_reasoning_come_as_they_are_sampled(model: Model) -> None:
    """Not held to the end: most ids of a plain reply say something at once."""
    words = "The files are in the folder and I read one with cat " * 4
    ids = model.sampled(words, words if model.family.reasons else "", [])
    parser = ReplyParser(model.choice, model.prompt, TOOLS)
    speaking = sum(bool(parser.feed([number])) for number in ids)
    assert speaking > 0.8 * len(ids) - 12


BROKEN: list[Callable[[str], str]] = [
    lambda text: text.replace("}", "", 1).replace(")", "", 1),
    lambda text: text.replace("bash", ""),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_call_is_text_with_a_flag(model: Model, broken: Callable[[str], str]) -> None:
    calls: list[Call] = [("bash", {"text": "ls", "data": {"a": [1]}})]
    family = model.family
    if family.parser == "pythonic" and broken is BROKEN[1]:
        pytest.skip("without a name nothing tells it from any other list")
    written = broken(family.write("", "", calls))
    if family.parser in ("qwen-xml", "glm"):
        written = written.replace("</parameter>", "", 1).replace("</arg_value>", "", 1)
    ids = model.encoder.encode(written, model.encoder.escape())
    deltas, reply = read(model, ids)
    assert said(deltas) == reply.message
    assert reply.message.tool_calls == ()
    assert reply.malformed
    assert family.marker.strip() in reply.message.content
    assert reply.finish == "stop"
