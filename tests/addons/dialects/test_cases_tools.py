"""What broke other proxies of this kind: tools, their schemas, and the choice among them, by the number of the case."""

from __future__ import annotations

from typing import Any

import pytest

from tests.addons.dialects.asking import (
    CHAT,
    DECLARED,
    GEMINI,
    MESSAGES,
    RESPONSES,
    USER,
    continues,
    function,
    grammar,
    in_order,
    messages,
    tool,
)
from tests.addons.dialects.cases import COMPACT, LS, PWD
from tests.addons.dialects.served import Served
from tests.addons.dialects.speakers.base import SCHEMA


def test_case_15_no_tools_and_an_automatic_choice(served: Served) -> None:
    got = served.call(RESPONSES, {"model": "m", "input": "go", "tools": [], "tool_choice": "auto"})
    assert got.said["output"][0]["content"][0]["text"] == "ok"
    assert got.turn.ignored_fields == []


_TWO = [tool("bash"), tool("look")]
_CHOICES = [
    (MESSAGES, messages(tools=_TWO, tool_choice={"type": "any"}), {"bash", "look"}, True),
    (MESSAGES, messages(tools=_TWO, tool_choice={"type": "tool", "name": "look"}), {"look"}, True),
    (MESSAGES, messages(tools=_TWO, tool_choice={"type": "any", "disable_parallel_tool_use": True}),
     {"bash", "look"}, False),
    (CHAT, {"model": "m", "messages": [USER], "tools": [function()], "tool_choice": "required"}, {"bash"}, True),
    (CHAT, {"model": "m", "messages": [USER], "tools": [function(), function("look")],
            "tool_choice": {"type": "function", "function": {"name": "look"}}}, {"look"}, True),
    (RESPONSES, {"model": "m", "input": "go", "tool_choice": "required",
                 "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA}]}, {"bash"}, True),
    (GEMINI, {"contents": [{"parts": [{"text": "go"}]}], "tools": DECLARED, "toolConfig": {
        "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["bash", "look"]}}}, {"bash", "look"}, True),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "names", "parallel"), _CHOICES)
def test_case_15_a_forced_choice_is_a_grammar(
    served: Served, path: str, body: Any, names: set[str], parallel: bool
) -> None:
    got = served.call(path, body, COMPACT if "bash" in names else COMPACT.replace("bash", "look"))
    found = grammar(got)
    assert found["at_least_one"]
    assert {name for name in ("bash", "look", "x") if any(f'"{name}"' in t["begin"] for t in found["tags"])} == names
    assert found["stop_after_first"] is not parallel
    assert got.turn.untrainable == "constrained decoding"


_NONE = [
    (MESSAGES, messages(tools=_TWO, tool_choice={"type": "none"})),
    (CHAT, {"model": "m", "messages": [USER], "tools": [function()], "tool_choice": "none"}),
    (RESPONSES, {"model": "m", "input": "go", "tool_choice": "none",
                 "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA}]}),
    (GEMINI, {"contents": [{"parts": [{"text": "go"}]}], "tools": DECLARED,
              "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), _NONE, ids=["messages", "chat", "responses", "gemini"])
def test_case_15_no_tool_may_be_called(served: Served, path: str, body: Any) -> None:
    got = served.call(path, body, COMPACT)
    assert "bash" not in got.prompt
    assert COMPACT in got.response.json().__str__()
    assert got.turn.untrainable is None


def test_case_15_one_call_at_a_time(served: Served) -> None:
    body = messages(tools=[tool()], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    got = served.call(MESSAGES, body, LS + PWD)
    assert [block["type"] for block in got.said["content"]] == ["tool_use"]
    assert got.turn.untrainable is None


def test_case_15_a_choice_that_names_no_tool_is_refused(served: Served) -> None:
    got = served.call(MESSAGES, messages(tools=_TWO, tool_choice={"type": "tool", "name": "fly"}))
    assert got.refused() == "tool_choice.name: Tool 'fly' not found in provided tools"


_SCHEMAS = [
    {"type": "object", "$defs": {"T": {"type": "string", "description": "in defs"}},
     "properties": {"a": {"$ref": "#/$defs/T"}}},
    {"type": "object", "definitions": {"_gen:tags": {"type": "array", "description": "in definitions"}},
     "properties": {"b": {"$ref": "#/definitions/_gen:tags"}}},
    {"type": "object", "properties": {"filter": {"type": "object", "description": "recursive",
                                                 "properties": {"and": {"$ref": "#/properties/filter"}}}}},
    {"type": "object", "properties": {"c": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "any of"},
                                      "d": {"const": "constant"}}},
    {"type": "object", "properties": {"e": {"type": ["string", "null"], "description": "two types"}}},
]  # fmt: skip
_SHOWN = ["in defs", "in definitions", "recursive", "any of", "constant", "two types"]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, GEMINI])
def test_case_16_schemas_are_shown_resolved(served: Served, path: str) -> None:
    named = {f"t{number}": schema for number, schema in enumerate(_SCHEMAS)}
    bodies: dict[str, Any] = {
        CHAT: {"model": "m", "messages": [USER], "tools": [function(*one) for one in named.items()]},
        RESPONSES: {"model": "m", "input": "go", "tools": [
            {"type": "function", "name": name, "parameters": schema} for name, schema in named.items()
        ]},
        MESSAGES: messages(tools=[tool(*one) for one in named.items()]),
        GEMINI: {"contents": [{"parts": [{"text": "go"}]}], "tools": [{"functionDeclarations": [
            {"name": name, "parametersJsonSchema": schema} for name, schema in named.items()
        ]}]},
    }  # fmt: skip
    got = served.call(path, bodies[path])
    assert got.turn.ignored_fields == []
    for shown in _SHOWN:
        assert got.prompt.count(shown) == 1, shown
    assert "#/$defs" not in got.prompt
    assert "#/definitions" not in got.prompt


def test_case_18_tools_of_every_kind(served: Served) -> None:
    """Custom and namespaced tools are called and replayed as they are; what only the provider can run is reported."""
    tools: list[Any] = [
        {"type": "custom", "name": "apply_patch", "format": {"type": "text"}},
        {"type": "local_shell"},
        {"type": "web_search"},
        {"type": "namespace", "name": "ns", "description": "d",
         "tools": [{"type": "function", "name": "get", "parameters": SCHEMA}]},
    ]  # fmt: skip
    called = [
        '<tool_call>{"name": "apply_patch", "arguments": {"input": "*** Begin"}}</tool_call>',
        '<tool_call>{"name": "local_shell", "arguments": {"command": ["ls"]}}</tool_call>',
        '<tool_call>{"name": "ns__get", "arguments": {"command": "x"}}</tool_call>',
    ]
    asked: dict[str, Any] = {"model": "m", "tools": tools, "input": [USER]}
    got = served.call(RESPONSES, asked, "\n".join(called))
    custom, shell, get = got.said["output"]
    assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "apply_patch", "*** Begin")
    assert (shell["type"], shell["action"]["command"]) == ("local_shell_call", ["ls"])
    assert (get["type"], get["namespace"], get["name"]) == ("function_call", "ns", "get")
    assert "tools[type=web_search]" in got.turn.ignored_fields
    results = [
        {"type": "custom_tool_call_output", "call_id": custom["call_id"], "output": "patched"},
        {"type": "local_shell_call_output", "id": shell["id"], "call_id": shell["call_id"], "output": "listed"},
        {"type": "function_call_output", "call_id": get["call_id"], "output": "got"},
    ]
    more = served.call(RESPONSES, {**asked, "input": [USER, custom, shell, get, *results]}, session=got.session)
    in_order(more.prompt, "patched", "listed", "got")
    continues(served, more)


def test_case_22_parallel_calls_of_one_function_stay_two(served: Served) -> None:
    """Ids are unique, results find their call by id or by order, signatures are taken back on any part."""
    asked: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "go"}]}], "tools": DECLARED}
    got = served.call(GEMINI, asked, LS + PWD)
    content = got.said["candidates"][0]["content"]
    first, second = [part["functionCall"] for part in content["parts"]]
    assert first["id"] != second["id"]
    answers = [{"functionResponse": {"id": c["id"], "name": "bash", "response": {"output": f"of {c['id']}"}}}
               for c in (first, second)]  # fmt: skip
    replayed = {**asked, "contents": [*asked["contents"], content, {"role": "user", "parts": answers}]}
    more = served.call(GEMINI, replayed, session=got.session)
    in_order(more.prompt, f"of {first['id']}", f"of {second['id']}")
    continues(served, more)
    for answer in answers:
        del answer["functionResponse"]["id"]
    unnamed = served.call(GEMINI, replayed)
    in_order(unnamed.prompt, f"of {first['id']}", f"of {second['id']}")
