from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from renderers import ToolCallParseStatus, config_from_name, create_renderer
from transformers.utils.chat_parsing import parse_response

from addons.conversation import (
    Conversation,
    Delta,
    Message,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolCall,
    ToolCallDelta,
)
from addons.model import ModelFiles
from addons.parsers.formats import HERMES
from addons.prompts import Prompts
from addons.replies import ParsedReply, ParserChoice, ReplyParser, parser_for
from tests.addons.kit import BASH, CHATML, chatml, said

LS = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
ANY = [BASH, Tool("x"), Tool("shell"), Tool("Bash")]


class Case:
    """A model, its parser, and a prompt that asks for a reply."""

    def __init__(self, model: ModelFiles, name: str = "hermes", **variables: object) -> None:
        self.model = model
        self.choice: ParserChoice = parser_for(model, name)
        self.prompt = Prompts(model).first(Conversation((Message("user", "hi"),), (BASH,), variables))

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self.model.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def read(
        self,
        reply: str | Sequence[int],
        *,
        cuts: Sequence[int] | None = None,
        stop: Sequence[str] = (),
        finish: Literal["stop", "length", "abort"] = "stop",
        stop_reason: str | int | None = None,
        tools: Sequence[Tool] = ANY,
    ) -> tuple[list[Delta], ParsedReply]:
        """Read a reply, in chunks that end at `cuts`, by default an id at a time."""
        ids = self.ids(reply) if isinstance(reply, str) else list(reply)
        ends = range(len(ids) + 1) if cuts is None else [*sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
        parser = ReplyParser(self.choice, self.prompt, tools, stop)
        deltas: list[Delta] = []
        start = 0
        for end in ends:
            deltas += parser.feed(ids[start:end])
            start = end
        last, reply_ = parser.finish(finish, stop_reason)
        return [*deltas, *last], reply_


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(chatml(tmp_path_factory.mktemp("chatml")))


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(chatml(tmp_path_factory.mktemp("fallback"), "byte_fallback"))


def kinds(deltas: Sequence[Delta]) -> list[str]:
    names = [type(delta).__name__ for delta in deltas]
    return [name for number, name in enumerate(names) if number == 0 or name != names[number - 1]]


def test_text_and_the_end_of_the_turn(case: Case) -> None:
    deltas, reply = case.read("Hello, you.\n<|im_end|>")
    assert said(deltas) == reply.message == Message("assistant", "Hello, you.\n")
    assert (reply.finish, reply.stop_sequence, reply.malformed) == ("stop", None, False)


def test_case_2_reasoning_waits_until_it_is_certain(case: Case) -> None:
    plain = [case.ids("<")[0], *case.ids("thi"), *case.ids("nk>a</"), *case.ids("think>b")]
    for ids in (case.ids("<think>a</think>b"), plain):
        parser = ReplyParser(case.choice, case.prompt, ANY)
        first = parser.feed(ids[:1]) + (parser.feed(ids[1:2]) if ids is plain else [])
        assert first == []
        deltas = parser.feed(ids[1:] if ids is not plain else ids[2:])
        last, reply = parser.finish("stop")
        assert kinds(deltas + last) == ["ReasoningDelta", "TextDelta"]
        assert (reply.message.reasoning, reply.message.content) == ("a", "b")
    _, reply = case.read("<thimble")
    assert reply.message.content == "<thimble"


@pytest.mark.parametrize("cuts", [[], None, [30]])
def test_case_4_parallel_calls_of_one_tool(case: Case, cuts: list[int] | None) -> None:
    deltas, reply = case.read(LS + "\n" + LS.replace("ls", "pwd") + "<|im_end|>", cuts=cuts)
    first, second = reply.message.tool_calls
    assert first.id != second.id
    assert (json.loads(first.arguments), json.loads(second.arguments)) == ({"command": "ls"}, {"command": "pwd"})
    assert said(deltas) == reply.message
    assert [d.index for d in deltas if isinstance(d, ToolCallDelta) and d.id] == [0, 1]
    assert reply.finish == "tool_calls"


def test_call_ids_are_the_callers(case: Case) -> None:
    parser = ReplyParser(case.choice, case.prompt, ANY, new_id=lambda: "toolu_1")
    deltas = parser.feed(case.ids(LS))
    assert deltas[0] == ToolCallDelta(0, id="toolu_1", name="bash")
    _, reply = case.read(LS)
    assert len(reply.message.tool_calls[0].id.removeprefix("call_")) == 24


@pytest.mark.parametrize(
    "reply", [LS, "\n\n" + LS, LS + "\n\n", "\n" + LS + "\n" + LS + "\n", "<think>x</think>\n\n" + LS]
)
def test_case_8_no_text_of_white_space(case: Case, reply: str) -> None:
    deltas, parsed = case.read(reply + "<|im_end|>")
    assert parsed.message.content == ""
    assert "TextDelta" not in kinds(deltas)
    assert parsed.finish == "tool_calls"


def test_white_space_within_and_after_text_is_kept(case: Case) -> None:
    _, reply = case.read("\n\n a \n" + LS + "\n b ")
    assert reply.message.content == "\n\n a \n\n b "
    assert case.read(" \n ")[1].message.content == ""


def test_case_9_no_markup_as_text(case: Case) -> None:
    reply = 'ok <tool_call>{"name":"shell","arguments":{}}</tool_call>'
    for cut in range(len(case.ids(reply))):
        deltas, parsed = case.read(reply, cuts=[cut])
        assert parsed.message.content == "ok "
        assert [(c.name, c.arguments) for c in parsed.message.tool_calls] == [("shell", "{}")]
        assert kinds(deltas) == ["TextDelta", "ToolCallDelta"]


def test_text_and_calls_in_order(case: Case) -> None:
    deltas, reply = case.read("a" + LS + "b" + LS + "c")
    assert kinds(deltas) == ["TextDelta", "ToolCallDelta"] * 2 + ["TextDelta"]
    assert reply.message.content == "abc"


MALFORMED = [
    '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}\n</tool_call>',  # a brace too few
    "<tool_call>\nls\n</tool_call>",
    "<tool_call></tool_call>",
    "<tool_call>{}</tool_call>",
    '<tool_call>{"name": "bash"}</tool_call>',
    '<tool_call>{"name": "", "arguments": {}}</tool_call>',
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "bash", "arguments": null}</tool_call>',
    '<tool_call>{"name": "bash", "arguments": [1]}</tool_call>',
    '<tool_call>{"name": "bash", "arguments": "ls"}</tool_call>',
    '<tool_call>{"name": "bash", "arguments": {"n": NaN}}</tool_call>',
    '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
    '<tool_call>[{"name": "bash", "arguments": {}}]</tool_call>',
    '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}',  # never closed
    "<tool_call>",
    "<tool_call>" + "[" * 5000 + "</tool_call>",
    '<tool_call>{"name": "bash", "arguments": {"n": ' + "1" * 5000 + "}}</tool_call>",
]


@pytest.mark.parametrize("reply", MALFORMED, ids=lambda text: text[:60])
def test_a_malformed_call_is_text_and_never_a_call(case: Case, reply: str) -> None:
    deltas, parsed = case.read("ok " + reply + "<|im_end|>")
    assert parsed.message == Message("assistant", "ok " + reply)
    assert said(deltas) == parsed.message
    assert parsed.malformed
    assert parsed.finish == "stop"


def test_a_good_call_beside_a_malformed_one(case: Case) -> None:
    deltas, reply = case.read("<tool_call>{oops}</tool_call>" + LS + "<tool_call>{oops}</tool_call>!")
    assert len(reply.message.tool_calls) == 1
    assert reply.message.content == "<tool_call>{oops}</tool_call>" * 2 + "!"
    assert reply.malformed
    assert reply.finish == "tool_calls"
    assert kinds(deltas) == ["TextDelta", "ToolCallDelta", "TextDelta"]


def test_arguments_in_a_string_and_odd_values(case: Case) -> None:
    _, reply = case.read('<tool_call>{"name": "x", "arguments": "{\\"a\\": 1}"}</tool_call>')
    assert reply.message.tool_calls[0].arguments == '{"a": 1}'
    _, reply = case.read('<tool_call>{"name": "x", "arguments": {"a": "\\ud800", "b": "한 <tool_call>"}}</tool_call>')
    arguments = reply.message.tool_calls[0].arguments
    arguments.encode()
    assert json.loads(arguments) == {"a": "\ud800", "b": "한 <tool_call>"}


def test_without_tools_markup_is_text(case: Case) -> None:
    _, reply = case.read("ok " + LS, tools=())
    assert reply.message == Message("assistant", "ok " + LS)
    assert not reply.malformed


@pytest.mark.parametrize("end", ["", "<|im_end|>"])
def test_case_24_a_stop_string_over_several_tokens(case: Case, end: str) -> None:
    for reply in ("so </done>", "so </done> and more"):
        for finish in ("stop", "abort"):
            deltas, parsed = case.read(reply + end, stop=["</done>"], finish=finish)  # type: ignore[arg-type]
            assert parsed.message.content == said(deltas).content == "so "
            assert (parsed.finish, parsed.stop_sequence) == ("stop_sequence", "</done>")
    parser = ReplyParser(case.choice, case.prompt, ANY, ["</done>"])
    assert said(parser.feed(case.ids("so </don"))).content == "so "
    assert not parser.stopped
    parser.feed(case.ids("e>"))
    assert parser.stopped
    assert parser.feed(case.ids("more" + LS)) == []


def test_what_only_began_like_a_stop_string_is_said(case: Case) -> None:
    _, reply = case.read("so </don't>, </do", stop=["</done>", "</do it>"])
    assert reply.message.content == "so </don't>, </do"
    assert (reply.finish, reply.stop_sequence) == ("stop", None)
    _, reply = case.read("a </do" + LS, stop=["</done>"])
    assert reply.message.content == "a </do"


def test_the_stop_string_that_was_complete_first(case: Case) -> None:
    _, reply = case.read("abcd", stop=["bcd", "c"])
    assert (reply.message.content, reply.stop_sequence) == ("ab", "c")
    _, reply = case.read("abcd", stop=["cd", "bcd"])
    assert (reply.message.content, reply.stop_sequence) == ("a", "bcd")


def test_case_24_a_stop_string_in_reasoning_is_none(case: Case) -> None:
    _, reply = case.read("<think>a\n\nb</think>\n\nc\n\nd", stop=["\n\n"])
    assert reply.message == Message("assistant", "c", "a\n\nb")
    assert reply.stop_sequence == "\n\n"
    _, reply = case.read(LS.replace("ls", "</done>"), stop=["</done>"])
    assert reply.finish == "tool_calls"
    assert reply.stop_sequence is None


def test_what_vllm_says_stopped_it(case: Case) -> None:
    """vLLM looks at the raw text, so it can stop where we do not: in reasoning. The turn is over all the same."""
    _, reply = case.read("<think>a\n\n", stop=["\n\n"], stop_reason="\n\n")
    assert (reply.finish, reply.stop_sequence, reply.message.reasoning) == ("stop_sequence", "\n\n", "a")
    _, reply = case.read("a<|im_end|>", stop_reason=case.ids("<|im_end|>")[0])
    assert (reply.finish, reply.stop_sequence) == ("stop", None)


def test_case_25_length(case: Case) -> None:
    deltas, reply = case.read("<think>I will", finish="length")
    assert said(deltas) == reply.message == Message("assistant", "", "I will")
    assert reply.finish == "length"
    assert reply.reasoning_tokens == len(case.ids("<think>I will"))
    _, reply = case.read(LS + "\n" + LS[:30], finish="length")
    assert reply.finish == "tool_calls"
    assert reply.malformed
    assert case.read("a", finish="abort")[1].finish == "abort"


@pytest.mark.parametrize("text", ["🧑‍🚀", "한", "é", "a🧑‍🚀b한cé"])
def test_case_31_characters_in_pieces(case: Case, fallback: Case, text: str) -> None:
    for model in (case, fallback):
        deltas, reply = model.read(text)
        assert reply.message.content == said(deltas).content == text
        assert "\ufffd" not in str(deltas)


def test_case_31_the_end_of_a_cut_off_character_is_dropped(case: Case, fallback: Case) -> None:
    for model in (case, fallback):
        ids = model.ids("a🚀")
        for cut in range(2, len(ids)):
            deltas, reply = model.read(ids[:cut], finish="length")
            assert reply.message.content == said(deltas).content == "a"


def test_case_31_a_prompt_that_ends_in_a_character_is_not_echoed(case: Case) -> None:
    rocket = case.ids("🚀")
    for cut in range(1, len(rocket)):
        parser = ReplyParser(case.choice, [*case.prompt, *rocket[:cut]], ANY)
        deltas = parser.feed([*rocket[cut:], *case.ids("go")])
        assert said(deltas).content == "go"
        parser = ReplyParser(case.choice, [*case.prompt, *rocket[:cut]], ANY)
        assert said(parser.feed(case.ids("go"))).content == "go"


def test_reasoning_that_the_prompt_opened(tmp_path: Path) -> None:
    case = Case(chatml(tmp_path), thinking=True)
    deltas, reply = case.read("I look.\n</think>\n\nDone.<|im_end|>")
    assert said(deltas) == reply.message == Message("assistant", "Done.", "I look.")


def test_reasoning_that_the_prompt_opened_and_closed(tmp_path: Path) -> None:
    """Thinking switched off: nothing of it is the model's, which may think all the same."""
    template = CHATML.replace(
        "'<think>\\n' }}{%- endif %}{%- endif %}", "'<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
    )
    assert template != CHATML
    case = Case(chatml(tmp_path, template=template), thinking=True)
    _, reply = case.read("Hi")
    assert (reply.message.content, reply.reasoning_tokens) == ("Hi", 0)
    _, reply = case.read("<think>a</think>b")
    assert (reply.message.content, reply.message.reasoning) == ("b", "a")


def test_a_think_in_the_users_message_opens_nothing(case: Case) -> None:
    asked = Conversation((Message("user", "What does <think> do?"),), (BASH,))
    parser = ReplyParser(case.choice, Prompts(case.model).first(asked), ANY)
    assert parser.feed(case.ids("It")) == [TextDelta("It")]


def test_reasoning_comes_first_or_not_at_all(case: Case) -> None:
    _, reply = case.read("The <think> tag opens, </think> closes.")
    assert reply.message == Message("assistant", "The <think> tag opens, </think> closes.")


def test_a_call_in_reasoning_is_a_draft(case: Case) -> None:
    _, reply = case.read(f"<think>I could {LS} but no</think>Hi")
    assert reply.message == Message("assistant", "Hi", f"I could {LS} but no")
    deltas, reply = case.read(f"<think>I look. {LS}<|im_end|>")  # the model forgot to end its reasoning
    assert reply.message.reasoning == "I look."
    assert reply.message.tool_calls[0].name == "bash"
    assert said(deltas) == reply.message
    _, reply = case.read("<think>I could <tool_call>", finish="length")
    assert reply.message == Message("assistant", "", "I could <tool_call>")


def test_an_end_that_was_none(case: Case) -> None:
    """Sampling that goes on after a stop token (`ignore_eos`) loses nothing."""
    _, reply = case.read("a<|im_end|>b<|im_end|>")
    assert reply.message.content == "a<|im_end|>b"


# At random: whatever is sampled, in whatever chunks.

piece = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        [
            *("<think>", "</think>", "<tool_call>", "</tool_call>", LS, "\n", " ", "<thi", "</done", ">", "🚀"),
            *("<|im_end|>", '{"name": "x", "arguments": {}}', '{"name": "x", "arg', "한국", "<|im_start|>", "</done>"),
        ]
    ),
)


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


@settings(max_examples=250, deadline=None)
@given(data=st.data(), parts=st.lists(piece, max_size=10), stops=st.sampled_from([(), ("</done>",), ("\n", "<t")]))
def test_random_replies(
    case: Case, fallback: Case, data: st.DataObject, parts: list[str], stops: tuple[str, ...]
) -> None:
    model = data.draw(st.sampled_from([case, fallback]))
    finish: Any = data.draw(st.sampled_from(["stop", "length", "abort"]))
    ids = model.ids("".join(parts))
    if data.draw(st.booleans()):
        other = st.integers(0, model.model.tokenizer.vocab_size + 5)
        ids = [*ids[: data.draw(st.integers(0, len(ids)))], *data.draw(st.lists(other, max_size=8)), *ids]
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))
    deltas, reply = model.read(ids, cuts=cuts, stop=stops, finish=finish)
    assert said(deltas) == reply.message
    whole, again = model.read(ids, cuts=[], stop=stops, finish=finish)
    assert joined(deltas) == joined(whole)
    assert (reply.finish, reply.stop_sequence, reply.malformed) == (again.finish, again.stop_sequence, again.malformed)
    assert all(d.text for d in deltas if isinstance(d, TextDelta | ReasoningDelta))
    assert all(isinstance(json.loads(c.arguments), dict) and c.name for c in reply.message.tool_calls)
    assert not reply.message.content or reply.message.content.strip()
    assert all(stop not in reply.message.content for stop in stops)


spoken = st.text("ab c\n한", max_size=8).filter(lambda text: text == text.strip())
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9**18) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
argument_sets = st.dictionaries(st.text(max_size=4), values, max_size=3)


def hermes(text: str, reasoning: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    written = [json.dumps({"name": n, "arguments": a}, ensure_ascii=False) for n, a in calls]
    blocks = [f"<tool_call>\n{block}\n</tool_call>" for block in written]
    return (f"<think>\n{reasoning}\n</think>\n\n" if reasoning else "") + "\n".join(
        [*([text] if text else []), *blocks]
    )


@settings(max_examples=150, deadline=None)
@given(
    text=spoken,
    reasoning=spoken,
    calls=st.lists(st.tuples(st.sampled_from(["bash", "x"]), argument_sets), max_size=3),
)
def test_random_calls_come_back(case: Case, text: str, reasoning: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    """What was meant is what is read, by us and by the libraries in one go."""
    markers = ("<tool_call>", "</tool_call>", "<|")
    if any(marker in json.dumps(a, ensure_ascii=False) for _, a in calls for marker in markers):
        return
    reply = hermes(text, reasoning, calls)
    deltas, parsed = case.read(reply + "<|im_end|>")
    assert said(deltas) == parsed.message
    assert (parsed.message.content.strip(), parsed.message.reasoning) == (text, reasoning)
    assert [(c.name, json.loads(c.arguments)) for c in parsed.message.tool_calls] == calls
    # transformers, whole; it keeps one run of text only, so where there are calls the text is not compared
    whole = parse_response(reply, HERMES.template, prefix="")
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in whole.get("tool_calls", [])] == calls
    assert whole.get("reasoning_content", "") == reasoning
    # renderers
    renderer = create_renderer(case.model.tokenizer, config_from_name("qwen3"))
    theirs = renderer.parse_response(case.ids(reply + "<|im_end|>"), prompt_ids=case.prompt)
    assert all(c.status == ToolCallParseStatus.OK for c in theirs.tool_calls)
    assert [(c.name, c.arguments) for c in theirs.tool_calls] == calls
    assert (theirs.content.strip(), (theirs.reasoning_content or "")) == (text, reasoning)


def test_the_cost_of_a_token_does_not_grow(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reads the whole reply again: ids are spelt once each, and text goes once through the parser."""
    spelt = 0
    spelling = type(case.choice.vocabulary).spelling

    def counting(self: Any, number: int) -> bytes:
        nonlocal spelt
        spelt += 1
        return spelling(self, number)

    monkeypatch.setattr(type(case.choice.vocabulary), "spelling", counting)
    ids = case.ids("word " * 500)
    parser = ReplyParser(case.choice, case.prompt, ANY)
    spelt = 0
    for number in ids:
        parser.feed([number])
    assert spelt == len(ids)


def test_round_trip_through_the_bridge(case: Case) -> None:
    """A call that was read, sent back by the harness and continued: one sequence, the sampled ids in it unchanged."""
    prompts = Prompts(case.model)
    asked = Conversation((Message("user", "hi"),), (BASH,))
    prompt, sampled = prompts.first(asked), case.ids(" ok\n" + LS + "<|im_end|>")
    _, reply = case.read(sampled)
    calls: tuple[ToolCall, ...] = reply.message.tool_calls
    new = [Message("tool", "a b", tool_call_id=calls[0].id)]
    extension = prompts.extend(
        Conversation((*asked.messages, reply.message, *new), (BASH,)), prompt, sampled, reply.message, new
    )
    assert not extension.added_close
    whole = prompts.first(Conversation((*asked.messages, reply.message, *new), (BASH,)))
    assert whole[len(whole) - len(extension.suffix) :] == extension.suffix
