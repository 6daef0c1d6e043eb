"""Every format at random: what was meant is what is read, cut anywhere, and nothing else ever runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addons.conversation import ReasoningDelta, TextDelta
from addons.replies import ReplyParser
from tests.addons.kit import said
from tests.addons.parsers.families import FAMILIES, TOOLS, Call, Model, make
from tests.addons.parsers.samples import content, joined, read, replies

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


@RANDOM
@given(data=st.data())
def test_what_was_meant_is_what_is_read(model: Model, data: st.DataObject) -> None:
    text, reasoning, calls = data.draw(replies(model))
    ids = model.sampled(text, reasoning, calls)
    deltas, reply = read(model, ids)
    assert said(deltas) == reply.message
    assert content(reply) == (text, reasoning, calls)
    assert not reply.malformed
    assert reply.finish == ("tool_calls" if calls else "stop")
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))
    assert joined(read(model, ids, cuts=cuts)[0]) == joined(deltas)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.oracle is not None])
@RANDOM
@given(data=st.data())
def test_the_library_reads_the_same(models: Callable[[str], Model], name: str, data: st.DataObject) -> None:
    """`renderers`; vLLM reads the others, see test_vllm.py."""
    model = models(name)
    text, reasoning, calls = data.draw(replies(model))
    ids = model.sampled(text, reasoning, calls)
    theirs = model.read_by_library(ids)
    assert content(read(model, ids)[1]) == theirs


@RANDOM
@given(data=st.data())
def test_cut_off_anywhere_only_whole_calls_are_calls(model: Model, data: st.DataObject) -> None:
    text, reasoning, calls = data.draw(replies(model))
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
    ids = model.sampled(*data.draw(replies(model)))
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


@pytest.mark.parametrize("broken", BROKEN, ids=["bracket", "name"])
def test_a_broken_call_is_text_with_a_flag(model: Model, broken: Callable[[str], str]) -> None:
    calls: list[Call] = [("bash", {"text": "ls", "data": {"a": [1]}})]
    family = model.family
    if family.marker in ("[", '{"name"') and broken is BROKEN[1]:
        return  # without a name nothing tells it from any other list or object
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


@pytest.mark.parametrize(
    ("name", "text", "malformed"),
    [
        ("llama3", 'As JSON: {"name": "Ada", "parameters": {"born": 1815}}', True),  # it has the very form of a call
        ("llama3", '{"name": "Ada", "parameters": "none"} is a person', False),
        ("llama3", '{"name": "bash", "parameters": {"text": "ls"}} would list them', True),
        ("llama3", '{"name": "Ada"}', False),
        ("pythonic", "[x(a=1) for x in y]", False),
        ("pythonic", "[print(a=1)]", True),
        ("pythonic", "[bash(text='ls') for _ in y]", True),
    ],
)
def test_without_a_marker_only_an_offered_tool_is_called(
    models: Callable[[str], Model], name: str, text: str, malformed: bool
) -> None:
    model = models(name)
    _, reply = read(model, model.sampled(text, "", []))
    assert (reply.message.content, reply.message.tool_calls, reply.malformed) == (text, (), malformed)


def test_with_a_marker_any_tool_is_called(models: Callable[[str], Model]) -> None:
    model = models("llama3 tag")
    _, reply = read(model, model.sampled("", "", [("nope", {})]))
    assert content(reply) == ("", "", [("nope", {})])


@pytest.mark.parametrize("name", ["hermes", "gpt-oss", "gemma4", "deepseek-v3"])
def test_a_reply_that_is_continued_far_from_its_beginning(models: Callable[[str], Model], name: str) -> None:
    """The prompt holds the reply's beginning: reasoning that is still open, however long it is."""
    model = models(name)
    opened = {"gpt-oss": "<|channel|>analysis<|message|>", "gemma4": "<|channel>thought\n"}.get(name, "<think>\n")
    begun = model.family.prompt + opened + "I look, and look again. " * 200
    prompt = model.encoder.encode(begun, model.encoder.escape())
    assert model.choice.thinking(prompt)
    parser = ReplyParser(model.choice, prompt, TOOLS)
    deltas = parser.feed(model.encoder.encode("and again", model.encoder.escape()))
    assert deltas
    assert all(isinstance(delta, ReasoningDelta) for delta in deltas)
