from __future__ import annotations

from typing import Any

import pytest

from addons.conversation import Message, Tool, ToolCall, ToolChoice
from addons.dialects.chat import read
from addons.errors import BadRequest

USER = {"role": "user", "content": "hi"}


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **more}


def test_a_plain_call() -> None:
    call = read(body())
    assert call.conversation.messages == (Message("user", "hi"),)
    assert (call.model, call.stream, call.ignored_fields, call.sampling.asked()) == ("m", False, (), {})


def test_messages_of_every_kind() -> None:
    call = read(body(messages=[
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "developer", "content": "d"},
        USER,
        {"role": "assistant", "content": None, "reasoning_content": "hm", "refusal": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "file"},
        {"role": "assistant", "content": "done"},
        {"role": "system", "content": "late"},
    ]))  # fmt: skip
    assert call.conversation.messages == (
        Message("system", "ab"),
        Message("developer", "d"),
        Message("user", "hi"),
        Message("assistant", "", "hm", (ToolCall("call_1", "bash", '{"command":"ls"}'),)),
        Message("tool", "file", tool_call_id="call_1"),
        Message("assistant", "done"),
        Message("system", "late"),
    )


def test_sampling_is_read_in_full() -> None:
    call = read(body(temperature=0.5, top_p=0.9, seed=7, stop="END", max_tokens=5, max_completion_tokens=9,
                     presence_penalty=1, frequency_penalty=-1, logit_bias={"5": -100}))  # fmt: skip
    assert call.sampling.asked() == {
        "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["END"], "max_tokens": 9, "presence_penalty": 1,
        "frequency_penalty": -1, "logit_bias": {"5": -100},
    }  # fmt: skip


def test_tools_and_tool_choice() -> None:
    tool = {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
    }
    assert read(body(tools=[tool])).conversation.tools == (Tool("f", "d", {"type": "object"}),)
    assert read(body(tools=[tool], tool_choice="auto")).conversation.tools
    assert read(body(tools=[tool], tool_choice="none")).conversation.tools == ()
    assert read(body(tools=[], tool_choice="auto")).conversation.tools == ()


@pytest.mark.parametrize(
    ("asked", "choice"),
    [
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("required", ("f",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
                {"type": "function", "function": {"name": "f"}}]}},
            ToolChoice("auto", ("f",)),
        ),
    ],
)  # fmt: skip
def test_tool_choice(asked: Any, choice: ToolChoice) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    assert read(body(tools=[tool], tool_choice=asked)).tool_choice == choice


@pytest.mark.parametrize("asked", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_forced_choice_needs_that_tool(asked: Any) -> None:
    with pytest.raises(BadRequest, match="tool_choice"):
        read(body(tool_choice=asked))
    with pytest.raises(BadRequest, match="'g' is none of the tools"):
        read(body(tools=[{"type": "function", "function": {"name": "f"}}],
                  tool_choice={"type": "function", "function": {"name": "g"}}))  # fmt: skip


def test_schemas_are_shown_resolved_and_recursion_is_bounded() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/Tree"}}}
    schema = {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}, "$defs": {"T": {"type": "string"}}}
    recursive = {"type": "object", "properties": {"root": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": tree}}
    tools = [
        {"type": "function", "function": {"name": n, "parameters": s}} for n, s in (("a", schema), ("b", recursive))
    ]
    a, b = read(body(tools=tools)).conversation.tools
    assert a.parameters == {"type": "object", "properties": {"t": {"type": "string"}}}
    assert b.parameters is not None
    assert "$defs" in b.parameters


def test_deprecated_functions_are_tools() -> None:
    call = read(body(
        functions=[{"name": "f", "parameters": {}}],
        messages=[USER, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                  {"role": "function", "name": "f", "content": "r"}],
    ))  # fmt: skip
    assert call.conversation.tools == (Tool("f", "", {}),)
    assert call.conversation.messages[2] == Message("tool", "r", tool_call_id="call_0", name="f")


def test_nothing_is_dropped_silently() -> None:
    call = read(body(
        n=None, brand_new={"a": 1}, user="u", store=True, metadata={"k": "v"}, parallel_tool_calls=False,
        stream_options={"include_usage": True, "include_obfuscation": False},
        messages=[{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}],
        tools=[{"type": "web_search"}, {"type": "function", "function": {"name": "f", "strict": True}}],
    ))  # fmt: skip
    assert call.ignored_fields == (
        "brand_new", "messages[].content[].cache_control", "metadata", "store",
        "stream_options.include_obfuscation", "tools[].function.strict", "tools[type=web_search]", "user",
    )  # fmt: skip
    assert call.options == {"include_usage": True}
    assert call.parallel_tool_calls is False


def test_output_formats() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert read(body(response_format=asked)).constraint == {"json": schema}
    assert read(body(response_format={"type": "json_object"})).constraint == {"json_object": True}
    assert read(body(response_format={"type": "text"})).constraint is None


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 3}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].image_url"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
        (
            {"messages": [USER, {"role": "tool", "tool_call_id": "?", "content": "x"}]},
            "messages[1].tool_call_id",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ({"n": 2}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": 1}}]}, "tools[0].function.name"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"modalities": ["text", "audio"]}, "modalities"),
    ],
)
def test_bad_input_names_the_field(change: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read({**body(), **change})
    assert caught.value.param == param
    assert param.split(".")[-1].split("[")[0] in caught.value.message
