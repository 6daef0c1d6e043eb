"""Forced calls of every format: what the grammar allows is what the parser reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import xgrammar

from addons.constraints import constraint_of, tool_constraint
from addons.conversation import Call, Conversation, Message, Sampling, Tool, ToolChoice
from addons.markup import CallMarkup, find_markup
from addons.parsers.formats import FORMATS
from addons.render import ChatTemplate
from tests.addons.parsers.families import FAMILIES, TOOLS, Model, compact, make
from tests.addons.parsers.samples import content, read

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("bash", {"text": "ls -la, {x}", "-n": 3, "flag": True, "data": {"a": [1, None]}, "items": [1.5, "b"]}),
    ("Read", {}),
]
# The forms that the grammars write, where a family has several.
_OTHERS = {"glm4.5", "gpt-oss template", "llama3 tag", "mistral ids", "mistral-list"}


@pytest.fixture(scope="module", params=[name for name in FAMILIES if name not in _OTHERS])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return make(tmp_path_factory.mktemp("family"), FAMILIES[request.param])


def markup_of(model: Model) -> CallMarkup:
    found = find_markup(ChatTemplate(model.files), [], model.choice.name)
    assert found is not None
    return found


def accepted(constraint: dict[str, Any] | None, text: str) -> bool:
    """Whether the engine's own grammar library lets a model write this, and end there."""
    assert constraint is not None
    grammar = xgrammar.Grammar.from_structural_tag(json.loads(constraint["structural_tag"]))
    letters = [bytes([byte]) for byte in range(256)]
    tokens = xgrammar.TokenizerInfo(letters, stop_token_ids=[0])
    matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(tokens).compile_grammar(grammar))
    return matcher.accept_string(text) and matcher.accept_token(0)


def written(model: Model, count: int = 2) -> str:
    """Calls as the family writes them, without the stop that the grammar leaves to the model."""
    text = model.family.write("", "", CALLS[:count]).lstrip().replace(":1<|tool_call_arg", ":0<|tool_call_arg")
    text = text.replace("<function=Read>\n", "<function=Read>\n\n")  # the grammar's line break for no parameters
    if model.family.parser == "gemma4":  # which may write JSON as well
        text = "".join(f"<|tool_call>call:{name}{compact(arguments)}<tool_call|>" for name, arguments in CALLS[:count])
    for stop in model.family.stops:
        text = text.removesuffix(stop) if stop != "<|call|>" else text
    return text


def test_every_format_with_calls_can_be_forced() -> None:
    have = [form.name for form in FORMATS if "tool_calls" in form.template["fields"]]
    assert sorted({family.parser for family in FAMILIES.values()}) == sorted(have)


def test_a_forced_call_is_what_the_family_writes_and_the_parser_reads(model: Model) -> None:
    constraint = tool_constraint(ToolChoice("required"), TOOLS, markup_of(model), parallel=True)
    count = 1 if markup_of(model).separator is None else 2
    text = written(model, count)
    assert accepted(constraint, text)
    ids = model.encoder.encode(text, model.encoder.escape())
    assert content(read(model, ids)[1]) == ("", "", CALLS[:count])
    assert not accepted(constraint, "words")
    assert not accepted(constraint, "")
    assert not accepted(constraint, text.replace("bash", "bosh"))


def test_one_call_and_a_choice_of_tools(model: Model) -> None:
    markup = markup_of(model)
    one = tool_constraint(ToolChoice("required"), TOOLS, markup, parallel=False)
    assert accepted(one, written(model, 1))
    if markup.separator is not None:
        assert not accepted(one, written(model, 2))
    other = tool_constraint(ToolChoice("required", ("Read",)), TOOLS, markup, parallel=True)
    assert not accepted(other, written(model, 1))
    free = tool_constraint(ToolChoice("auto", ("bash",)), TOOLS, markup, parallel=True)
    assert accepted(free, "words")
    assert accepted(free, "words " + written(model, 1))
    if markup.section[0] != "[":  # any list may begin with that
        assert not accepted(free, "words " + written(model, 1).replace("bash", "Read"))


def test_reasoning_that_the_prompt_opened_comes_first(model: Model) -> None:
    markup = markup_of(model)
    call = Call(Conversation((Message("user", "x"),), tuple(TOOLS)), Sampling(), "m", False)
    forced = Call(call.conversation, Sampling(), "m", False, tool_choice=ToolChoice("required"))
    constraint = constraint_of(forced, markup, thinking=True)
    assert accepted(constraint, "Hm, hm.\n</think>\n\n" + written(model, 1))
    assert not accepted(constraint, written(model, 1))
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    asked = Call(Conversation((Message("user", "x"),)), Sampling(), "m", False, constraint={"json": schema})
    assert accepted(constraint_of(asked, markup, thinking=True), f'Hm.</think>{markup.before_answer}{{"a": 1}}')
    assert accepted(constraint_of(asked, markup), markup.before_answer + '{"a": 1}')


@pytest.mark.parametrize("name", ["hermes", "deepseek-v3", "kimi-k2", "lfm2"])
def test_whether_a_prompt_has_opened_its_reasoning(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    model = make(tmp_path_factory.mktemp("family"), FAMILIES[name])
    opened: Callable[[str], bool] = lambda text: model.choice.thinking(  # noqa: E731
        model.encoder.encode(model.family.prompt + text, model.encoder.escape())
    )
    assert not opened("")
    assert opened("<think>\n")
    assert not opened("<think>\n\n</think>\n\n")


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string"},
        "mode": {"enum": ["fast", "slow"]},
        "lines": {"type": ["integer", "null"]},
        "any": {},
    },
    "required": ["mode", "command"],
}


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ("command='ls', mode='fast'", True),
        (r"command='it\'s\n', mode='slow', lines=-3, any=[1, {'a': None}]", True),
        ("command='ls', mode='slow', any=(1)", False),
        ("command='ls', mode='slow', lines=None", True),
        ("command='ls', mode='middling'", False),
        ("command='ls'", False),
        ("command=3, mode='fast'", False),
        ("command='it's', mode='fast'", False),
        ("", False),
    ],
)
def test_arguments_as_python_writes_them(arguments: str, fits: bool) -> None:
    markup = find_markup(None, [], "pythonic")  # type: ignore[arg-type]  # a format with a name needs no template
    constraint = tool_constraint(ToolChoice("required"), [Tool("f", "", PARAMETERS)], markup, parallel=True)
    assert accepted(constraint, f"[f({arguments})]") is fits


def test_arguments_that_are_all_optional_or_unknown() -> None:
    markup = find_markup(None, [], "pythonic")  # type: ignore[arg-type]
    optional = {"type": "object", "properties": {"a": {"type": "integer"}, "-b": {"type": "string"}}}
    constraint = tool_constraint(ToolChoice("required"), [Tool("f", "", optional)], markup, parallel=True)
    for arguments in ("", "a=1", "-b='x'", "a=1, -b='x'"):
        assert accepted(constraint, f"[f({arguments})]")
    assert not accepted(constraint, "[f(-b='x', a=1)]")
    free = tool_constraint(ToolChoice("required"), [Tool("f")], markup, parallel=True)
    assert accepted(free, "[f()]")
    assert accepted(free, "[f(x=1, y={'a': 'b'}), f()]")
