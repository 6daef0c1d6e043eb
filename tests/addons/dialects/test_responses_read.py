from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from addons.conversation import Message, Reply, Tool, ToolCall, ToolChoice, Usage
from addons.dialects.continuing import nothing_stored
from addons.dialects.responses import CONTINUING, error_body, read, read_count
from addons.dialects.responses_compaction import REQUEST
from addons.dialects.responses_items import input_items
from addons.dialects.responses_parts import seal, unseal
from addons.errors import BadRequest, ContextLengthExceeded, NotFound

USER = {"role": "user", "content": "hi"}
FUNCTION = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edit.", "format": {"type": "text"}}
PNG = "data:image/png;base64," + base64.b64encode(b"12345").decode()


def body(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items) or "hi", **more}


def messages(*items: Any, **more: Any) -> tuple[Message, ...]:
    return read(body(*items, **more)).conversation.messages


def call(number: int, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {
        "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name,
        "arguments": arguments, "status": "completed",
    }  # fmt: skip


def output(number: int, said: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": said}


def said(text: str, name: str = "msg_1") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": name, "role": "assistant", "status": "completed", "content": [part]}


def test_a_plain_call() -> None:
    read_call = read({"model": "m", "input": "hi"})
    assert read_call.conversation.messages == (Message("user", "hi"),)
    assert (read_call.model, read_call.stream, read_call.ignored_fields) == ("m", False, ())
    assert read_call.sampling.asked() == {}
    assert read_call.options["store"] is True
    asked = body(stream=True, temperature=0.5, top_p=0.9, max_output_tokens=32000, store=False)
    assert read(asked).sampling.asked() == {"temperature": 0.5, "top_p": 0.9, "max_tokens": 32000}
    assert (read(asked).stream, read(asked).options["store"]) == (True, False)


def test_instructions_and_developer_messages_stay_in_their_place() -> None:
    assert messages(
        {"role": "developer", "content": "d"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]},
        {"role": "developer", "content": "later"},
        {"role": "system", "content": "s"},
        instructions="i",
    ) == (
        Message("system", "i"), Message("developer", "d"), Message("user", "u"), Message("developer", "later"),
        Message("system", "s"),
    )  # fmt: skip


def test_a_replayed_reply_is_one_assistant_message() -> None:
    sealed = seal("hm")
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": list[Any](), "encrypted_content": sealed}
    found = read(
        body(USER, reasoning, said("I look. "), call(1, "ls", '{"a":1}'), call(2), output(1, "x"), output(2, "y"),
             said("done"), USER)
    )  # fmt: skip
    assert found.conversation.messages == (
        Message("user", "hi"),
        Message("assistant", "I look. ", "hm", (ToolCall("call_1", "ls", '{"a":1}'), ToolCall("call_2", "f", "{}"))),
        Message("tool", "x", tool_call_id="call_1"),
        Message("tool", "y", tool_call_id="call_2"),
        Message("assistant", "done"),
        Message("user", "hi"),
    )
    assert found.ignored_fields == ()


@pytest.mark.parametrize(
    ("item", "text", "ignored"),
    [
        ({"encrypted_content": seal("héllo"), "summary": [{"type": "summary_text", "text": "short"}]}, "héllo", ()),
        ({"summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]}, "a\n\nb", ()),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}, "r", ()),
        ({"summary": [], "encrypted_content": "gAAAAB"}, "", ("input[].encrypted_content",)),
        ({"summary": [], "encrypted_content": "htap1.!"}, "", ("input[].encrypted_content",)),
    ],
)
def test_reasoning(item: dict[str, Any], text: str, ignored: tuple[str, ...]) -> None:
    found = read(body(USER, {"type": "reasoning", "id": "rs_1", **item}, said("a")))
    assert found.conversation.messages[1] == Message("assistant", "a", text)
    assert found.ignored_fields == ignored


def test_several_reasonings_of_one_reply_are_kept_apart() -> None:
    thoughts = [{"type": "reasoning", "summary": [], "encrypted_content": seal(text)} for text in ("a", "b", "\n\nc")]
    assert messages(USER, thoughts[0], said("x"), thoughts[1], thoughts[2])[1].reasoning == "a\n\nb\n\nc"


def test_a_seal_is_only_ours() -> None:
    assert unseal(seal("🧑‍🚀")) == "🧑‍🚀"
    assert unseal(None) is unseal("x") is unseal(3) is None


def test_outputs_as_parts_keep_their_order_and_images() -> None:
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": PNG, "detail": "high"},
        {"type": "input_text", "text": "b"},
    ]
    found = read(body(USER, call(1), call(2), output(2, parts), output(1, "x")))
    assert found.conversation.messages[2:] == (
        Message("tool", "a\n[image: image/png, 5 bytes]\nb", tool_call_id="call_2"),
        Message("tool", "x", tool_call_id="call_1"),
    )
    assert found.ignored_fields == ("input[].output[].detail", "input[].output[].image_url")


@pytest.mark.parametrize(
    ("part", "text", "ignored"),
    [
        ({"type": "input_image", "image_url": "https://example.org"}, "[image: https://example.org]", "image_url"),
        ({"type": "input_image", "file_id": "file-1"}, "[image: file-1]", "file_id"),
        ({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,MTIz"},
         "[file: a.pdf, application/pdf, 3 bytes]", "file_data"),
        ({"type": "input_file", "file_data": "MT\nIz"},
         "[file: unnamed, application/octet-stream, 3 bytes]", "file_data"),
        ({"type": "input_file", "file_url": "https://example.org/a"}, "[file: https://example.org/a]", "file_url"),
        ({"type": "input_file", "file_id": "file-1"}, "[file: file-1]", "file_id"),
        ({"type": "input_audio", "input_audio": {"data": "x", "format": "mp3"}}, "[audio]", "input_audio"),
        ({"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,w6k="},
         "[file: a.txt]\né", None),
        ({"type": "input_file", "file_data": "data:text/plain,a%20b"}, "a b", None),
        ({"type": "refusal", "refusal": "no"}, "no", None),
    ],
)  # fmt: skip
def test_parts(part: dict[str, Any], text: str, ignored: str | None) -> None:
    found = read(body({"role": "user", "content": [{"type": "input_text", "text": "> "}, part]}))
    assert found.conversation.messages == (Message("user", "> " + text),)
    assert found.ignored_fields == (() if ignored is None else (f"input[].content[].{ignored}",))


def test_custom_tools_are_functions_with_an_input() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
    found = read(body(tools=[PATCH, {"type": "custom", "name": "g", "format": grammar}, FUNCTION]))
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    assert found.conversation.tools == (
        Tool("apply_patch", "Edit.", schema),
        Tool("g", '\n\nThe input must match this lark grammar:\nstart: "x"', schema),
        Tool("f", "d", {"type": "object"}),
    )
    assert found.ignored_fields == ("tools[].format",)


def test_calls_of_every_kind_come_back_as_the_model_made_them() -> None:
    exec_ = {"type": "exec", "command": ["ls", "-l"], "env": {}, "timeout_ms": 5, "user": None}
    found = messages(
        USER,
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "apply_patch", "input": 'a "é"\n'},
        {"type": "function_call", "call_id": "call_2", "name": "get", "namespace": "ns", "arguments": "{}"},
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_3", "status": "completed", "action": exec_},
        {"type": "tool_search_call", "call_id": "call_4", "execution": "client", "arguments": {"q": "é"}},
        {"type": "custom_tool_call_output", "call_id": "call_1", "name": "apply_patch", "output": "ok"},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "local_shell_call_output", "id": "call_3", "output": "files"},
        {"type": "tool_search_output", "call_id": "call_4", "execution": "client", "status": "completed",
         "tools": [{"type": "namespace", "name": "n", "description": "N.", "tools": [FUNCTION]}]},
    )  # fmt: skip
    assert [(c.id, c.name, json.loads(c.arguments)) for c in found[1].tool_calls] == [
        ("call_1", "apply_patch", {"input": 'a "é"\n'}),
        ("call_2", "ns__get", {}),
        ("call_3", "local_shell", {"command": ["ls", "-l"], "timeout_ms": 5}),
        ("call_4", "tool_search", {"q": "é"}),
    ]
    assert [(m.tool_call_id, m.content) for m in found[2:5]] == [
        ("call_1", "ok"), ("call_2", "1"), ("call_3", "files"),
    ]  # fmt: skip
    assert json.loads(found[5].content) == {
        "name": "n__f", "description": "N.\n\nd", "parameters": {"type": "object"},
    }  # fmt: skip


def test_tools_that_were_searched_can_be_called_but_do_not_change_the_prompt_before() -> None:
    search = {"type": "tool_search", "execution": "client", "description": "Find.", "parameters": {"type": "object"}}
    found = read(
        body(
            USER,
            {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {}},
            {"type": "tool_search_output", "call_id": "c", "tools": [{**FUNCTION, "defer_loading": True}]},
            tools=[search],
        )
    )
    assert found.conversation.tools == (Tool("tool_search", "Find.", {"type": "object"}),)
    assert set(found.options["offers"]) == {"tool_search", "f"}


def test_namespaces_are_flattened() -> None:
    tools = [{"type": "namespace", "name": "ns", "description": "About ns.", "tools": [FUNCTION, PATCH]}]
    found = read(body(tools=tools))
    assert [(t.name, t.description) for t in found.conversation.tools] == [
        ("ns__f", "About ns.\n\nd"), ("ns__apply_patch", "Edit."),
    ]  # fmt: skip
    assert found.ignored_fields == ()


def test_tools_only_the_provider_can_run_are_reported() -> None:
    hosted = [
        "web_search", "web_search_preview", "image_generation", "code_interpreter", "mcp", "file_search",
        "computer_use_preview", "shell", "apply_patch", "tool_search", "programmatic_tool_calling", "of_tomorrow",
    ]  # fmt: skip
    found = read(body(tools=[{"type": kind, "anything": {}} for kind in hosted] + [{"type": "local_shell"}]))
    assert [tool.name for tool in found.conversation.tools] == ["local_shell"]
    assert found.ignored_fields == tuple(sorted(f"tools[type={kind}]" for kind in hosted))


def test_additional_tools_are_tools() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [FUNCTION, PATCH, {"type": "web_search"}]}
    found = read(body(item, USER, tool_choice="auto"))
    assert [tool.name for tool in found.conversation.tools] == ["f", "apply_patch"]
    assert found.conversation.messages == (Message("user", "hi"),)
    assert found.ignored_fields == ("tools[type=web_search]",)
    assert read(body(item, USER, tool_choice={"type": "custom", "name": "apply_patch"})).tool_choice.names


@pytest.mark.parametrize(
    ("asked", "choice"),
    [
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "f"}, ToolChoice("required", ("f",))),
        ({"type": "function", "namespace": "ns", "name": "f"}, ToolChoice("required", ("ns__f",))),
        ({"type": "custom", "name": "apply_patch"}, ToolChoice("required", ("apply_patch",))),
        ({"type": "local_shell"}, ToolChoice("required", ("local_shell",))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]},
            ToolChoice("auto", ("f",)),
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "apply_patch"}]},
            ToolChoice("required", ("apply_patch",)),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "image_generation"}]}, ToolChoice("none")),
    ],
)
def test_tool_choice(asked: Any, choice: ToolChoice) -> None:
    namespace = {"type": "namespace", "name": "ns", "description": "", "tools": [FUNCTION]}
    found = read(body(tools=[FUNCTION, PATCH, {"type": "local_shell"}, namespace], tool_choice=asked))
    assert found.tool_choice == choice
    assert bool(found.conversation.tools) is (choice.mode != "none")


def test_no_tools_and_tool_choice_auto() -> None:
    assert read(body(tools=[], tool_choice="auto")).tool_choice == ToolChoice()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("required", "Tool choice 'required' must be specified with 'tools' parameter"),
        ({"type": "function", "name": "g"}, "must be specified with"),
        ({"type": "web_search_preview"}, "tools of type 'web_search_preview' are not served"),
        ({"type": "mcp", "server_label": "x"}, "tools of type 'mcp' are not served"),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "mcp"}]}, "none of these tools is served"),
        ({"type": "allowed_tools", "mode": "maybe", "tools": []}, "Invalid value: 'maybe'"),
        ("sometimes", "Supported values are: 'none', 'auto', and 'required'"),
    ],
)
def test_a_choice_that_cannot_be_honoured_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as caught:
        read(body(tool_choice=asked))
    assert str(caught.value.param).startswith("tool_choice")


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(BadRequest, match="Tool choice 'g' not found in 'tools' parameter"):
        read(body(tools=[FUNCTION], tool_choice={"type": "function", "name": "g"}))


def test_schemas_are_shown_resolved() -> None:
    tags = {"type": "array", "items": {"type": "string"}}
    schemas: list[dict[str, Any]] = [
        {"type": "object", "properties": {"t": {"$ref": "#/$defs/T", "description": "here"}},
         "$defs": {"T": {"type": "object", "properties": {"u": {"$ref": "#/$defs/U"}}}, "U": {"const": 1}}},
        {"type": "object", "properties": {"t": {"$ref": "#/definitions/_gen:tags"}},
         "definitions": {"_gen:tags": tags}},
        {"type": "object", "properties": {"filter": {"properties": {"and": {"$ref": "#/properties/filter"}}}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "b": {"const": 2}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"n": {"$ref": "#/$defs/Node"}, "t": {"$ref": "#/$defs/T"}},
         "$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}}, "T": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/s.json"}, "b": {"$ref": "#/$defs/none"}}},
        {"$defs": {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 2} for n in range(40)} | {"L40": {}},
         "properties": {"a": {"$ref": "#/$defs/L0"}}},
    ]  # fmt: skip
    tools = [{"type": "function", "name": f"f{i}", "parameters": schema} for i, schema in enumerate(schemas)]
    found = [tool.parameters for tool in read(body(tools=tools)).conversation.tools]
    assert found[0] == {
        "type": "object",
        "properties": {"t": {"type": "object", "properties": {"u": {"const": 1}}, "description": "here"}},
    }
    assert found[1] == {"type": "object", "properties": {"t": tags}}
    assert found[2:5] == schemas[2:5]
    assert found[5] == {
        "type": "object",
        "properties": {"n": {"properties": {"next": {"$ref": "#/$defs/Node"}}}, "t": {"type": "string"}},
        "$defs": schemas[5]["$defs"],
    }
    assert found[6:] == schemas[6:]


def test_output_formats() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asked = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    assert read(body(text={"format": asked})).constraint == {"json": schema}
    assert read(body(text={"format": {"type": "json_object"}})).constraint == {"json_object": True}
    assert read(body(text={"format": {"type": "text"}, "verbosity": "low"})).constraint is None
    assert read(body(text={"format": asked, "verbosity": "low"})).ignored_fields == ("text.verbosity",)


def test_what_is_needed_again() -> None:
    include = ["reasoning.encrypted_content", "message.output_text.logprobs", "file_search_call.results"]
    found = read(body(include=include, reasoning={"effort": "low", "summary": "auto"}, parallel_tool_calls=False))
    assert found.options.keys() == {"store", "summary", "encrypted", "logprobs", "offers", "echo"}
    assert found.parallel_tool_calls is False
    assert found.ignored_fields == ("include[file_search_call.results]", "reasoning.effort")


def test_nothing_is_dropped_silently() -> None:
    found = read(
        body(
            {"role": "user", "content": [{"type": "input_text", "text": "x", "cache": 1}], "weight": 2},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
            {"type": "compaction", "encrypted_content": "gAAA"},
            {"type": "of_tomorrow"},
            brand_new={"a": 1}, user="u", truncation="auto", max_tool_calls=3, prompt_cache_key="k", top_logprobs=2,
            reasoning={"effort": "high", "mode": "pro"}, stream_options={"include_obfuscation": True, "more": 1},
            metadata={"k": "v"}, client_metadata={"a": "b"},
            tools=[{**FUNCTION, "strict": True, "allowed_callers": ["direct"]}],
        )
    )  # fmt: skip
    assert found.ignored_fields == (
        "brand_new", "client_metadata", "input[].content[].cache", "input[].weight", "input[type=compaction]",
        "input[type=of_tomorrow]", "input[type=web_search_call]", "max_tool_calls", "prompt_cache_key",
        "reasoning.effort", "reasoning.mode", "stream_options.include_obfuscation", "stream_options.more",
        "tools[].allowed_callers", "tools[].strict", "top_logprobs", "truncation", "user",
    )  # fmt: skip


def test_our_own_compaction_is_read_back() -> None:
    found = read(body({"type": "compaction", "id": "cmp_1", "encrypted_content": seal("so far")}, USER))
    assert found.conversation.messages == (Message("user", "so far"), Message("user", "hi"))
    assert found.ignored_fields == ()


def test_a_previous_response_comes_before() -> None:
    first = {"model": "m", "input": "list", "instructions": "old", "tools": [FUNCTION]}
    said_first = Reply(Message("assistant", "", "hm", (ToolCall("call_1", "f", "{}"),)), "tool_calls", Usage(1, 1))
    state = CONTINUING.after(nothing_stored, first, "resp_1", said_first)
    assert [item.get("type", item.get("role")) for item in state] == ["message", "reasoning", "function_call"]
    second = body(output(1, "a b"), previous_response_id="resp_1", instructions="new")
    assert CONTINUING.previous(second) == "resp_1"
    assert CONTINUING.previous(first) is None
    found = read(second, {"resp_1": state}.get)
    assert found.conversation.messages == (
        Message("system", "new"),
        Message("user", "list"),
        said_first.message,
        Message("tool", "a b", tool_call_id="call_1"),
    )
    assert found.ignored_fields == ()
    after = CONTINUING.after(
        {"resp_1": state}.get, second, "resp_2", Reply(Message("assistant", "ok"), "stop", Usage(1, 1))
    )
    assert after[:4] == [*state, output(1, "a b")]
    assert after[4]["content"][0]["text"] == "ok"
    with pytest.raises(BadRequest, match="No tool call found for function call output with call_id call_1"):
        read(second, {"resp_1": []}.get)


def test_a_previous_response_that_is_not_stored() -> None:
    with pytest.raises(BadRequest) as caught:
        read(body(USER, previous_response_id="resp_x"))
    assert caught.value.status == 400
    assert error_body(caught.value) == {
        "error": {
            "message": "Previous response with id 'resp_x' not found.", "type": "invalid_request_error",
            "param": "previous_response_id", "code": "previous_response_not_found",
        }
    }  # fmt: skip


def test_item_references() -> None:
    asked = body({"id": "msg_10000"}, {"type": "item_reference", "id": "fc_20001"}, USER, said("x"))
    stored = {"resp_1": [said("a", "msg_10000")], "resp_2": [USER, {**call(1), "id": "fc_20001"}]}
    assert read(asked, stored.get).conversation.messages == (
        Message("assistant", "a", tool_calls=(ToolCall("call_1", "f", "{}"),)),
        Message("user", "hi"),
        Message("assistant", "x"),
    )
    with pytest.raises(NotFound, match=r"Item with id 'msg_10000' not found\. Items are not persisted") as caught:
        read(asked)
    assert (caught.value.status, caught.value.param) == (404, "input")


def test_a_trigger_at_the_end_asks_for_a_summary() -> None:
    """As Codex compacts: an ordinary call, with the same tools and so the same prompt as before."""
    asked = body(USER, said("x"), {"type": "compaction_trigger"}, tools=[FUNCTION])
    found = read(asked)
    assert found.compaction
    assert [m.content for m in found.conversation.messages] == ["hi", "x", REQUEST]
    assert [t.name for t in found.conversation.tools] == ["f"]
    assert found.ignored_fields == ()
    assert not read(body({"type": "compaction_trigger"}, USER)).compaction


def test_what_a_compacted_conversation_goes_on_from() -> None:
    asked = body(USER, said("x"), {"type": "compaction_trigger"})
    state = CONTINUING.after(
        nothing_stored, asked, "resp_1", Reply(Message("assistant", "so far"), "stop", Usage(1, 1))
    )
    assert [item["type"] for item in state] == ["message", "compaction"]
    [first, summary, more] = read(
        body(USER, previous_response_id="resp_1"), {"resp_1": state}.get
    ).conversation.messages
    assert (first, more) == (Message("user", "hi"), Message("user", "hi"))
    assert summary.content.endswith("so far")


def test_a_prewarm_needs_no_input() -> None:
    asked = {"type": "response.create", "model": "m", "generate": False, "input": [], "instructions": "i"}
    found = read(asked, socket=True)
    assert (found.generate, found.stream) == (False, True)
    assert found.ignored_fields == ()
    state = CONTINUING.after(nothing_stored, {**asked, "input": [USER]}, "resp_1", None)
    assert state == [USER]


def test_what_is_of_a_websocket_is_no_field_elsewhere() -> None:
    found = read(body(USER, type="response.create", generate=False))
    assert found.generate
    assert found.ignored_fields == ("generate", "type")
    for kind in (None, "response.cancel"):
        with pytest.raises(BadRequest, match=f"Invalid value: {kind!r}. Supported values are: 'response.create'"):
            read(body(USER, type=kind), socket=True)


def test_a_count_needs_no_model() -> None:
    assert read_count({"input": "hi", "model": None}).conversation.messages == (Message("user", "hi"),)
    assert read_count(body()).model == "m"
    with pytest.raises(BadRequest, match="body"):
        read_count([])


def test_input_items() -> None:
    assert input_items({"input": "x"}) == [{"type": "message", "role": "user", "content": "x"}]
    assert input_items({}) == []


def test_a_prompt_that_is_too_long_in_the_provider_s_words() -> None:
    described = error_body(ContextLengthExceeded(10, 5))["error"]
    assert described["message"].startswith("Your input exceeds the context window of this model.")
    assert (described["code"], described["param"], described["type"]) == (
        "context_length_exceeded", "input", "invalid_request_error",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": 3}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "video"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,!"}]}]},
         "input[0].content[0].image_url"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].image_url"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f"}]}, "input[0].input"),
        ({"input": [{"type": "local_shell_call", "call_id": "c"}]}, "input[0].action"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [output(1, "x")]}, "input"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": "x"}, "top_p"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"include": [3]}, "include"),
        ({"metadata": "x"}, "metadata"),
        ({"reasoning": "high"}, "reasoning"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"name": "f"}]}, "tools[0].type"),
        ({"tools": [{"type": "custom", "name": "f", "format": {"type": "grammar"}}]}, "tools[0].format.definition"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"previous_response_id": ""}, "previous_response_id"),
    ],
)  # fmt: skip
def test_bad_input_names_the_field(change: dict[str, Any], param: str) -> None:
    with pytest.raises((BadRequest, NotFound)) as caught:
        read({**body(), **change})
    assert caught.value.param == param
    assert error_body(caught.value)["error"]["param"] == param
