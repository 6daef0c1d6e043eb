from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import xgrammar

from addons.constraints import constraint_of, tool_constraint
from addons.conversation import Call, Conversation, Message, Sampling, Tool, ToolChoice
from addons.errors import BadRequest
from addons.markup import CallMarkup, find_markup
from addons.model import ModelFiles
from addons.render import ChatTemplate

BASH = Tool("bash", "", {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]})
READ = Tool("read", "", {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]})
ONE = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "read", "arguments": {"lines": 3}}\n</tool_call>'
XML = CallMarkup("<tool_call>\n<function=", ">\n", "\n</function>\n</tool_call>", "xml", "\n")


@pytest.fixture(scope="session")
def markup(tiny: ModelFiles) -> CallMarkup:
    found = find_markup(ChatTemplate(tiny), ["<|im_end|>"])
    assert found is not None
    return found


def accepts(choice: ToolChoice, text: str, markup: CallMarkup, *, parallel: bool = True) -> bool:
    """What the engine's own grammar library makes of the constraint."""
    return matches(tool_constraint(choice, [BASH, READ], markup, parallel=parallel), text)


def call(constraint: dict[str, Any] | None, *tools: Tool) -> Call:
    return Call(Conversation((Message("user", "x"),), tools), Sampling(), "m", False, constraint=constraint)


def matches(constraint: dict[str, Any] | None, text: str) -> bool:
    assert constraint is not None
    grammar = xgrammar.Grammar.from_structural_tag(json.loads(constraint["structural_tag"]))
    letters = xgrammar.TokenizerInfo([chr(i).encode() for i in range(128)], stop_token_ids=[0])
    matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(letters).compile_grammar(grammar))
    return matcher.accept_string(text) and matcher.accept_token(0)


def test_the_template_tells_the_markup(markup: CallMarkup) -> None:
    assert markup == CallMarkup('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", "json", "\n")


def test_auto_is_free(markup: CallMarkup) -> None:
    assert tool_constraint(ToolChoice(), [BASH], markup, parallel=True) is None
    assert tool_constraint(ToolChoice("none"), [], None, parallel=True) is None


@pytest.mark.parametrize(
    ("choice", "text", "fits"),
    [
        (ToolChoice("required"), ONE, True),
        (ToolChoice("required"), OTHER, True),
        (ToolChoice("required"), f"{ONE}\n{OTHER}", True),
        (ToolChoice("required"), "words", False),
        (ToolChoice("required"), "", False),
        (ToolChoice("required"), ONE.replace('"ls"', "3"), False),
        (ToolChoice("required", ("read",)), OTHER, True),
        (ToolChoice("required", ("read",)), ONE, False),
        (ToolChoice("auto", ("read",)), "words", True),
        (ToolChoice("auto", ("read",)), f"words {OTHER}", True),
        (ToolChoice("auto", ("read",)), f"words {ONE}", False),
    ],
)
def test_the_grammar_says_what_the_choice_says(choice: ToolChoice, text: str, fits: bool, markup: CallMarkup) -> None:
    assert accepts(choice, text, markup) is fits


def test_one_call_only(markup: CallMarkup) -> None:
    assert accepts(ToolChoice("required"), ONE, markup, parallel=False)
    assert not accepts(ToolChoice("required"), f"{ONE}\n{OTHER}", markup, parallel=False)


def test_the_xml_form() -> None:
    text = "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"
    assert accepts(ToolChoice("required"), text, XML)
    assert not accepts(ToolChoice("required"), ONE, XML)


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("auto", ("bash",))])
def test_a_markup_without_a_grammar_is_refused(choice: ToolChoice) -> None:
    with pytest.raises(BadRequest, match="cannot be forced"):
        tool_constraint(choice, [BASH], None, parallel=True)


def test_an_output_format_is_json_without_floods_of_white_space() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    asked = constraint_of(call({"json": schema}), None)
    assert matches(asked, '{"a": 1}')
    assert matches(asked, '{"a":1}')
    assert not matches(asked, '{"a": "x"}')
    assert not matches(asked, '{  \n  "a": 1}')
    assert matches(constraint_of(call({"json_object": True}), None), '{"any": [1, {"thing": null}]}')
    assert constraint_of(call(None), None) is None
    assert constraint_of(call({"choice": ["a"]}), None) == {"choice": ["a"]}


def test_an_output_format_leaves_room_for_calls(markup: CallMarkup) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    free = constraint_of(call({"json": schema}, BASH), markup)
    assert matches(free, '{"a": 1}')
    assert matches(free, ONE)
    assert not matches(free, "words")
    forced = constraint_of(replace(call({"json": schema}, BASH), tool_choice=ToolChoice("required")), markup)
    assert matches(forced, ONE)
    assert not matches(forced, '{"a": 1}')
