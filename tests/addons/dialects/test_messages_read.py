from __future__ import annotations

import json
from typing import Any

import pytest

from addons.conversation import Message, Sampling, Tool, ToolCall, ToolChoice
from addons.dialects.messages import error_body, read, read_count
from addons.errors import BadRequest
from addons.lineage import trail

USER = {"role": "user", "content": "hi"}
BASH = {"name": "Bash", "description": "d", "input_schema": {"type": "object", "properties": {"command": {}}}}
LS = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 64, "messages": [USER], **more}


def messages(*items: dict[str, Any]) -> tuple[Message, ...]:
    return read(body(messages=list(items))).conversation.messages


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def result(content: Any = None, **more: Any) -> dict[str, Any]:
    found = {"type": "tool_result", "tool_use_id": "toolu_1", **more}
    return found if content is None else {**found, "content": content}


def test_a_plain_call() -> None:
    call = read(body())
    assert call.conversation.messages == (Message("user", "hi"),)
    assert (call.model, call.stream, call.ignored_fields) == ("m", False, ())
    assert call.sampling == Sampling(max_tokens=64)
    assert (call.tool_choice, call.parallel_tool_calls, call.constraint) == (ToolChoice(), True, None)
    assert call.conversation.template_kwargs == {}


def test_the_url_may_name_the_model() -> None:
    without = {key: value for key, value in body(anthropic_version="vertex-2023-10-16").items() if key != "model"}
    call = read(without, "claude-x@1")
    assert (call.model, call.ignored_fields) == ("claude-x@1", ("anthropic_version",))
    assert read(body(), "other").model == "m"


def test_sampling_is_read_in_full() -> None:
    call = read(body(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["</done>", "\n\n"], stream=True))
    assert call.sampling.asked() == {
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "max_tokens": 64, "stop": ["</done>", "\n\n"],
    }  # fmt: skip
    assert call.stream


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("be brief", "be brief"),
        ([text("a"), text("b")], "a\nb"),
        ([text("x-anthropic-billing-header: cc_version=1; cch=0af3;"), text("a")], "a"),
        ("x-anthropic-billing-header: cch=1;\nbe brief", "be brief"),
    ],
)
def test_system(system: Any, said: str) -> None:
    assert read(body(system=system)).conversation.messages == (Message("system", said), Message("user", "hi"))


@pytest.mark.parametrize("system", ["", [], None, [text("x-anthropic-billing-header: cch=1;")]])
def test_no_system(system: Any) -> None:
    assert read(body(system=system)).conversation.messages == (Message("user", "hi"),)


def test_what_changes_in_every_request_changes_no_prompt() -> None:
    first, second = (
        read(body(system=[text(f"x-anthropic-billing-header: cch={n};"), {**text("a"), **cached}], messages=[said]))
        for n, cached, said in ((1, {}, USER), (2, {"cache_control": {"type": "ephemeral"}}, user(text("hi"))))
    )
    assert first.conversation == second.conversation
    assert first.ignored_fields == ("system[x-anthropic-billing-header]",)
    assert second.ignored_fields == ("system[].cache_control", "system[x-anthropic-billing-header]")


def test_a_system_message_stays_where_it_is() -> None:
    history = [USER, {"role": "assistant", "content": "a"}, {"role": "system", "content": "later"}, USER]
    call = read(body(system="s", messages=history))
    assert [m.role for m in call.conversation.messages] == ["system", "user", "assistant", "system", "user"]
    earlier = read(body(system="s", messages=history[:1]))
    left = trail(earlier.conversation).after(Message("assistant", "a"))
    assert left in {prefix.digest for prefix in trail(call.conversation).prefixes}


def test_a_turn_with_everything() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert messages(
        USER,
        assistant(thought, text("I look."), LS, {**LS, "id": "toolu_2", "input": {"command": "é"}}),
        user(result("a"), result("b", tool_use_id="toolu_2"), text("and?"), PNG),
    ) == (
        Message("user", "hi"),
        Message(
            "assistant",
            "I look.",
            "hm",
            (ToolCall("toolu_1", "Bash", '{"command": "ls"}'), ToolCall("toolu_2", "Bash", '{"command": "é"}')),
        ),
        Message("tool", "a", tool_call_id="toolu_1"),
        Message("tool", "b", tool_call_id="toolu_2"),
        Message("user", "and?\n[image: image/png, 5 bytes]"),
    )


def test_blocks_of_a_user_keep_their_order() -> None:
    found = messages(USER, assistant(LS), user(text("first"), result("r"), text("then"), text("last")))
    assert [(m.role, m.content) for m in found[2:]] == [("user", "first"), ("tool", "r"), ("user", "then\nlast")]


def test_a_reply_that_comes_back_in_pieces_is_one_message() -> None:
    whole = messages(USER, assistant(text("a"), LS, text("b")), user(result("r")))
    pieces = messages(USER, assistant(text("a")), assistant(LS, text("b")), user(result("r")))
    assert whole == pieces
    assert whole[1].content == "ab"


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (result("a"), "a"),
        (result([text("a"), text("b")]), "a\nb"),
        (result(), ""),
        (result([]), ""),
        (result("no such file", is_error=True), "[tool error]\nno such file"),
        (result(is_error=True), "[tool error]"),
        (result("a", is_error=False), "a"),
        (result([text("see"), PNG]), "see\n[image: image/png, 5 bytes]"),
        (result([{"type": "tool_reference", "tool_name": "Grep"}]), "[tool: Grep]"),
        (
            result([{"type": "search_result", "source": "s", "title": "t", "content": [text("x"), text("y")]}]),
            "[search result: t, s]\nx\ny",
        ),
        (
            result([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "body"}}]),
            "body",
        ),
    ],
)
def test_tool_results(block: dict[str, Any], said: str) -> None:
    assert messages(USER, assistant(LS), user(block))[2] == Message("tool", said, tool_call_id="toolu_1")


def test_a_result_without_its_call_is_reported() -> None:
    call = read(body(messages=[user(result("a"))]))
    assert call.conversation.messages == (Message("tool", "a", tool_call_id="toolu_1"),)
    assert call.ignored_fields == ("messages[].content[].tool_use_id",)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"type": "base64", "media_type": "image/jpeg", "data": "aGVsbG8h"}, "[image: image/jpeg, 6 bytes]"),
        ({"type": "url", "url": "https://example.com/a.png"}, "[image: https://example.com/a.png]"),
        ({"type": "file", "file_id": "file_1"}, "[image: file_1]"),
    ],
)
def test_images_are_placeholders_and_reported(source: dict[str, Any], said: str) -> None:
    call = read(body(messages=[user({"type": "image", "source": source}), assistant(LS), user(result([PNG]))]))
    assert call.conversation.messages[0].content == said
    assert call.ignored_fields == (
        "messages[].content[].content[type=image]",
        "messages[].content[type=image]",
    )


@pytest.mark.parametrize(
    ("document", "said", "reported"),
    [
        (
            {"source": {"type": "text", "media_type": "text/plain", "data": "a\nb"}, "title": "T", "context": "C"},
            "[document: T]\nC\na\nb",
            (),
        ),
        ({"source": {"type": "content", "content": "inline"}}, "inline", ()),
        ({"source": {"type": "content", "content": [text("x"), text("y")]}}, "x\ny", ()),
        (
            {"source": {"type": "base64", "media_type": "application/pdf", "data": "aGVsbG8="}, "title": "T"},
            "[document: T, application/pdf, 5 bytes]",
            ("messages[].content[type=document]",),
        ),
        (
            {"source": {"type": "url", "url": "https://example.com/a.pdf"}, "citations": {"enabled": True}},
            "[document: https://example.com/a.pdf]",
            ("messages[].content[].citations", "messages[].content[type=document]"),
        ),
    ],
)
def test_documents(document: dict[str, Any], said: str, reported: tuple[str, ...]) -> None:
    call = read(body(messages=[user({"type": "document", **document})]))
    assert call.conversation.messages == (Message("user", said),)
    assert call.ignored_fields == reported


def test_what_the_providers_own_tools_did_is_visible() -> None:
    call = read(body(messages=[
        USER,
        assistant(
            text("I search."),
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "é"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
                {"type": "web_search_result", "title": "T", "url": "u", "encrypted_content": "zzz", "page_age": None}]},
            {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_2", "content": {
                "type": "web_fetch_result", "url": "u", "content": {"type": "document", "source": {
                    "type": "base64", "media_type": "application/pdf", "data": "aGVsbG8="}}}},
            text("Found."),
        ),
        USER,
    ]))  # fmt: skip
    said = call.conversation.messages[1].content
    assert said.startswith('I search.\n[server_tool_use {"id": "srvtoolu_1", "name": "web_search", "input": {"query"')
    assert '"title": "T", "url": "u"' in said
    assert "[document: application/pdf, 5 bytes]" in said
    assert said.endswith("Found.")
    assert "zzz" not in said
    assert "aGVsbG8" not in said
    assert call.ignored_fields == (
        "messages[].content[].content.content[type=document]",
        "messages[].content[].content[].encrypted_content",
    )


def test_what_cannot_be_shown_is_reported() -> None:
    call = read(body(messages=[
        USER, assistant({"type": "redacted_thinking", "data": "zzz"}, {"type": "next_week", "x": 1}), USER,
    ]))  # fmt: skip
    assert call.conversation.messages[1] == Message("assistant", '\n[next_week {"x": 1}]\n')
    assert call.ignored_fields == (
        "messages[].content[type=next_week]",
        "messages[].content[type=redacted_thinking]",
    )


def test_nothing_is_dropped_silently() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    call = read(body(
        brand_new={"a": 1}, metadata={"user_id": "u"}, service_tier="auto", container="c", betas=["b"],
        mcp_servers=[{"type": "url", "url": "u", "name": "n"}], context_management={"edits": []}, **cached,
        system=[{**text("s"), **cached}],
        messages=[user({**text("x"), **cached}), assistant({**LS, **cached}), user(result("r", **cached))],
        tools=[{**BASH, **cached, "strict": True}, {"type": "web_search_20250305", "name": "web_search", **cached}],
        output_config={"effort": "high"}, thinking={"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
    ))  # fmt: skip
    assert call.ignored_fields == (
        "betas", "brand_new", "cache_control", "container", "context_management", "mcp_servers",
        "messages[].content[].cache_control", "metadata", "output_config.effort", "service_tier",
        "system[].cache_control", "thinking.budget_tokens", "thinking.display", "tools[].cache_control",
        "tools[].strict", "tools[type=web_search_20250305]",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("thinking", "variables", "reported"),
    [
        ({"type": "disabled"}, {"enable_thinking": False}, ()),
        ({"type": "adaptive"}, {"enable_thinking": True}, ()),
        ({"type": "enabled", "budget_tokens": 1024}, {"enable_thinking": True}, ("thinking.budget_tokens",)),
        ({"type": "between_tools"}, {"enable_thinking": True}, ("thinking[type=between_tools]",)),
    ],
)
def test_thinking(thinking: dict[str, Any], variables: dict[str, Any], reported: tuple[str, ...]) -> None:
    call = read(body(thinking=thinking))
    assert call.conversation.template_kwargs == variables
    assert call.ignored_fields == reported


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


def test_output_formats() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    assert read(body(output_config={"format": form})).constraint == {"json": {"type": "object"}}
    assert read(body(output_format=form)).constraint == {"json": {"type": "object"}}
    assert read(body(output_config={})).constraint is None


def test_a_count_needs_no_limit_and_may_end_with_an_assistant() -> None:
    history = [USER, {"role": "assistant", "content": "a"}]
    counted = read_count({"model": "m", "messages": history, "tools": [BASH]})
    assert counted.conversation.messages == (Message("user", "hi"), Message("assistant", "a"))
    assert counted.conversation.tools


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"model": None}, "model", "model: Field required"),
        ({"model": 3}, "model", "model: Input should be a valid string"),
        ({"max_tokens": None}, "max_tokens", "max_tokens: Field required"),
        ({"max_tokens": -1}, "max_tokens", "max_tokens: Input should be greater than or equal to 0"),
        ({"max_tokens": "9"}, "max_tokens", "max_tokens: Input should be a valid number"),
        ({"messages": None}, "messages", "messages: Field required"),
        ({"messages": []}, "messages", "messages: at least one message is required"),
        ({"messages": ["x"]}, "messages[0]", "messages.0: Input should be a valid dictionary"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "messages.0.role: Field required"),
        (
            {"messages": [{"role": "wizard", "content": "x"}]},
            "messages[0].role",
            "messages.0.role: Input should be 'user', 'assistant' or 'system'",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "messages.0.content: Field required"),
        (
            {"messages": [{"role": "user", "content": {}}]},
            "messages[0].content",
            "messages.0.content: Input should be a string or an array of blocks",
        ),
        (
            {"messages": [user({"text": "x"})]},
            "messages[0].content[0].type",
            "messages.0.content.0.type: Field required",
        ),
        (
            {"messages": [user({"type": "text"})]},
            "messages[0].content[0].text",
            "messages.0.content.0.text: Field required",
        ),
        (
            {"messages": [USER, assistant({**LS, "input": "ls"}), USER]},
            "messages[1].content[0].input",
            "messages.1.content.0.input: Input should be a valid dictionary",
        ),
        (
            {"messages": [user(result([{"type": "image"}]))]},
            "messages[0].content[0].content[0].source",
            "messages.0.content.0.content.0.source: Field required",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": "The answer is "}]},
            "messages",
            "messages: final assistant content cannot end with trailing whitespace",
        ),
        ({"temperature": 1.5}, "temperature", "temperature: Input should be less than or equal to 1"),
        ({"temperature": "hot"}, "temperature", "temperature: Input should be a valid number"),
        ({"top_p": -0.5}, "top_p", "top_p: Input should be greater than or equal to 0"),
        ({"top_k": -1}, "top_k", "top_k: Input should be greater than or equal to 0"),
        ({"top_k": 1.5}, "top_k", "top_k: Input should be a valid integer"),
        (
            {"stop_sequences": [""]},
            "stop_sequences",
            "stop_sequences: each stop sequence must contain at least one character",
        ),
        ({"stream": "yes"}, "stream", "stream: Input should be a valid boolean"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "thinking.budget_tokens: Field required"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 5}},
            "thinking.budget_tokens",
            "thinking.budget_tokens: Input should be greater than or equal to 1024",
        ),
        (
            {"thinking": {"type": "deep"}},
            "thinking.type",
            "thinking.type: Input should be one of 'enabled', 'adaptive', 'between_tools', 'disabled', not 'deep'",
        ),
        (
            {"tool_choice": {"type": "any"}},
            "tool_choice",
            "tool_choice: tool_choice may only be specified while providing tools.",
        ),
        (
            {"tools": [BASH], "tool_choice": {"type": "tool", "name": "g"}},
            "tool_choice.name",
            "tool_choice.name: Tool 'g' not found in provided tools",
        ),
        ({"tools": [BASH], "tool_choice": {"type": "tool"}}, "tool_choice.name", "tool_choice.name: Field required"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema", "tools.0.input_schema: Field required"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name", "tools.0.name: Field required"),
        ({"tools": [BASH, BASH]}, "tools", "tools: Tool names must be unique."),
        (
            {"output_config": {"format": {"type": "yaml"}}},
            "output_config.format.type",
            "output_config.format.type: Input should be 'json_schema', not 'yaml'",
        ),
        (
            {"thread": {"type": "continue"}},
            "thread.previous_message_id",
            "thread.previous_message_id: Field required",
        ),
        (
            {"thread": {"type": "fork"}},
            "thread.type",
            "thread.type: Input should be 'create' or 'continue', not 'fork'",
        ),
        (
            {"thread": {"type": "create", "for": 3}},
            "thread.for",
            "thread.for: Extra inputs are not permitted",
        ),
        ({"compaction": {"type": "summarize"}}, "compaction", "compaction: Extra inputs are not permitted"),
    ],
)
def test_bad_input_names_the_field_in_the_providers_words(change: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read({**body(), **change})
    assert caught.value.param == param
    assert error_body(caught.value) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": words},
    }


def test_a_body_that_is_no_object() -> None:
    with pytest.raises(BadRequest, match="body: Input should be a valid dictionary"):
        read([])
