from __future__ import annotations

from typing import Any

import pytest

from addons.conversation import Tool, ToolChoice
from tests.addons.dialects.gemini_bodies import LS, call_of


def test_types_in_capitals_become_json_schema() -> None:
    schema = {
        "type": "OBJECT", "description": "d", "required": ["a"], "propertyOrdering": ["b", "a"],
        "properties": {
            "a": {"type": "INTEGER", "format": "int32", "nullable": True, "minimum": 1},
            "b": {"type": "ARRAY", "items": {"type": "STRING", "enum": ["x"]}, "min_items": "2", "maxItems": 3},
            "type": {"anyOf": [{"type": "NUMBER"}, {"type": "BOOLEAN"}], "nullable": True},
            "max_items": {"type": "string", "example": "e"},
        },
    }  # fmt: skip
    call = call_of(tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}])
    assert call.conversation.tools == (Tool("f", "", {
        "type": "object", "description": "d", "required": ["a"],
        "properties": {
            "a": {"type": ["integer", "null"], "format": "int32", "minimum": 1},
            "b": {"type": "array", "items": {"type": "string", "enum": ["x"]}, "minItems": 2, "maxItems": 3},
            "type": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]},
            "max_items": {"type": "string", "examples": ["e"]},
        },
    }),)  # fmt: skip
    properties = (call.conversation.tools[0].parameters or {})["properties"]
    assert list(properties) == ["b", "a", "type", "max_items"]


def test_json_schema_parameters_are_taken_as_they_are_but_for_references() -> None:
    rest = {"b": {"type": ["string", "null"]}, "c": {"max_items": 1}}
    schema = {
        "type": "object", "$defs": {"T": {"type": "string", "const": "x"}},
        "properties": {"a": {"$ref": "#/$defs/T"}, **rest},
    }  # fmt: skip
    tools = [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": schema}, {"name": "g"}]}]
    seen = {"type": "object", "properties": {"a": {"type": "string", "const": "x"}, **rest}}
    assert call_of(tools=tools).conversation.tools == (Tool("f", "", seen), Tool("g"))


def test_schemas_are_resolved_by_their_references() -> None:
    schema = {"type": "OBJECT", "defs": {"T": {"type": "STRING"}}, "properties": {"a": {"ref": "#/defs/T"}}}
    tools = call_of(tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}]).conversation.tools
    assert tools[0].parameters == {"type": "object", "properties": {"a": {"type": "string"}}}


def test_googles_own_tools_are_reported() -> None:
    call = call_of(tools=[
        {"googleSearch": {}}, {"codeExecution": {}}, {"url_context": {}}, {"functionDeclarations": [LS]},
    ])  # fmt: skip
    assert [tool.name for tool in call.conversation.tools] == ["ls"]
    assert call.ignored_fields == ("tools[].codeExecution", "tools[].googleSearch", "tools[].url_context")


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({}, ToolChoice()),
        ({"mode": "AUTO"}, ToolChoice()),
        ({"mode": "MODE_UNSPECIFIED"}, ToolChoice()),
        ({"mode": "ANY"}, ToolChoice("required")),
        ({"mode": "any", "allowedFunctionNames": ["ls"]}, ToolChoice("required", ("ls",))),
        ({"mode": "ANY", "allowedFunctionNames": ["ls", "cat"]}, ToolChoice("required", ("ls", "cat"))),
        ({"mode": "NONE", "allowedFunctionNames": []}, ToolChoice("none")),
    ],
)
def test_tool_choice(config: dict[str, Any], choice: ToolChoice) -> None:
    tools = [{"functionDeclarations": [LS, {"name": "cat"}]}]
    call = call_of(tools=tools, toolConfig={"functionCallingConfig": config})
    assert (call.tool_choice, call.ignored_fields) == (choice, ())
    assert bool(call.conversation.tools) is (choice.mode != "none")


def test_validated_is_not_any() -> None:
    config = {"mode": "VALIDATED", "allowedFunctionNames": ["ls"]}
    call = call_of(tools=[{"functionDeclarations": [LS]}], toolConfig={"functionCallingConfig": config})
    assert call.tool_choice == ToolChoice("auto", ("ls",))
    assert call.ignored_fields == ("toolConfig.functionCallingConfig.mode[VALIDATED]",)


def test_auto_without_tools_is_a_plain_call() -> None:
    call = call_of(tools=[], toolConfig={"functionCallingConfig": {"mode": "AUTO"}})
    assert call.tool_choice == ToolChoice()


# --- generationConfig
