from __future__ import annotations

import json
from typing import Any

import pytest

from addons.conversation import Tool, ToolChoice
from addons.dialects.messages import read
from tests.addons.dialects.messages_bodies import BASH, body


def test_tools() -> None:
    call = read(body(tools=[BASH, {"type": "custom", "name": "x", "input_schema": {"type": "object"}}]))
    assert call.conversation.tools == (
        Tool("Bash", "d", {"type": "object", "properties": {"command": {}}}),
        Tool("x", "", {"type": "object"}),
    )


@pytest.mark.parametrize(
    ("tool", "properties", "commands"),
    [
        ({"type": "bash_20250124", "name": "bash"}, {"command", "restart"}, None),
        (
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line", "insert_text"},
            ["view", "create", "str_replace", "insert"],
        ),
        (
            {"type": "text_editor_20250124", "name": "str_replace_editor"},
            {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line", "insert_text"},
            ["view", "create", "str_replace", "insert", "undo_edit"],
        ),
        (
            {"type": "memory_20250818", "name": "memory"},
            {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line", "insert_text",
             "old_path", "new_path"},
            ["view", "create", "str_replace", "insert", "delete", "rename"],
        ),
    ],
)  # fmt: skip
def test_tools_that_the_harness_runs_without_a_schema(
    tool: dict[str, Any], properties: set[str], commands: list[str] | None
) -> None:
    call = read(body(tools=[tool]))
    (found,) = call.conversation.tools
    assert found.name == tool["name"]
    assert found.parameters is not None
    assert set(found.parameters["properties"]) == properties
    assert found.parameters["properties"]["command"].get("enum") == commands
    assert call.ignored_fields == ()


def test_references_in_a_tools_schema_are_resolved() -> None:
    def tool(schema: dict[str, Any]) -> dict[str, Any]:
        return {"name": f"t{len(tools)}", "input_schema": schema}

    deep = {"type": "object", "properties": {"leaf": {"type": "string"}}}
    tools: list[dict[str, Any]] = []
    for schema in (
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/T"}}, "$defs": {"T": deep}},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/definitions/_gen:tags"}},
            "definitions": {"_gen:tags": deep},
        },
        {"type": "object", "properties": {"filter": {"anyOf": [deep, {"$ref": "#/properties/filter"}]}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "const": "x"}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
    ):
        tools.append(tool(schema))
    found = read(body(tools=tools)).conversation.tools
    for resolved in found[:2]:
        assert resolved.parameters == {"type": "object", "properties": {"a": deep}}
    assert json.dumps(found[2].parameters).count("leaf") == 1
    assert [t.parameters for t in found[3:]] == [t["input_schema"] for t in tools[3:]]


@pytest.mark.parametrize(
    ("asked", "choice"),
    [
        ({"type": "auto"}, ToolChoice()),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "tool", "name": "Bash"}, ToolChoice("required", ("Bash",))),
        ({"type": "none"}, ToolChoice("none")),
    ],
)
def test_tool_choice(asked: dict[str, Any], choice: ToolChoice) -> None:
    call = read(body(tools=[BASH], tool_choice=asked))
    assert call.tool_choice == choice
    assert bool(call.conversation.tools) is (asked["type"] != "none")
    assert call.parallel_tool_calls
    assert not read(body(tools=[BASH], tool_choice={**asked, "disable_parallel_tool_use": True})).parallel_tool_calls


def test_an_automatic_choice_needs_no_tools() -> None:
    assert read(body(tools=[], tool_choice={"type": "auto"})).conversation.tools == ()
