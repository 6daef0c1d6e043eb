from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from addons.conversation import Call, Message, Tool, ToolCall, ToolChoice
from addons.dialects.gemini import count_reply, error_body, read, read_count
from addons.dialects.gemini_errors import CacheNotFound
from addons.dialects.gemini_fields import json_name, proto_path
from addons.dialects.gemini_schema import json_schema
from addons.dialects.gemini_signature import thought_signature
from addons.errors import BadRequest, ContextLengthExceeded, EngineRefused, EngineUnavailable

HI = {"role": "user", "parts": [{"text": "hi"}]}
LS = {"name": "ls", "description": "d", "parameters": {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}}}
PNG = base64.b64encode(b"\x89PNG\xff\xfe\xfa").decode()


def call_of(*contents: Any, **more: Any) -> Call:
    return read({"contents": list(contents) or [HI], **more}, "gemini-x")


def messages_of(*contents: Any) -> tuple[Message, ...]:
    return call_of(*contents).conversation.messages


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def ask(name: str, args: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args or {}, **more}}


def answer(name: str, response: Any, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": response, **more}}


def test_a_plain_call_takes_its_model_and_stream_from_the_url() -> None:
    call = read({"contents": [HI]}, "gemini-x", True, True)
    assert call.conversation.messages == (Message("user", "hi"),)
    assert (call.model, call.stream, call.ignored_fields, call.sampling.asked()) == ("gemini-x", True, (), {})
    assert call.options == {}
    assert read({"contents": [HI]}, "m", True, sse=False).options == {"array": True}
    assert read({"contents": [HI]}, "m", False, sse=False).options == {}


def test_messages_of_every_kind() -> None:
    signed = {"thoughtSignature": thought_signature("r1")}
    call = call_of(
        {"parts": [{"text": "no role: "}, {"text": "a user"}]},
        model(
            {"text": "hm", "thought": True}, {"text": "I "}, {"text": "look", **signed},
            {**ask("ls", id="c1"), **signed},
        ),
        {"role": "function", "parts": [answer("ls", {"output": "a\nb"}, id="c1")]},
        model({"text": "done"}),
        user({"text": "more"}),
        systemInstruction={"role": "system", "parts": [{"text": "be "}, {"text": "brief"}]},
    )  # fmt: skip
    assert call.conversation.messages == (
        Message("system", "be brief"),
        Message("user", "no role: a user"),
        Message("assistant", "I look", "hm", (ToolCall("c1", "ls", "{}"),)),
        Message("tool", "a\nb", tool_call_id="c1", name="ls"),
        Message("assistant", "done"),
        Message("user", "more"),
    )
    assert call.ignored_fields == ()


def test_both_spellings_are_one_field() -> None:
    snake = {
        "system_instruction": {"parts": {"text": "s"}},
        "contents": {"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": PNG}}]},
        "generation_config": {
            "max_output_tokens": 5, "stop_sequences": ["x"], "top_p": 0.5,
            "thinking_config": {"include_thoughts": True},
            "response_mime_type": "application/json", "response_json_schema": {"type": "object"},
        },
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": {"max_items": 1}}]}],
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["f"]}},
    }  # fmt: skip
    camel = {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "contents": [user({"inlineData": {"mimeType": "image/png", "data": PNG}})],
        "generationConfig": {
            "maxOutputTokens": 5, "stopSequences": ["x"], "topP": 0.5, "thinkingConfig": {"includeThoughts": True},
            "responseMimeType": "application/json", "responseJsonSchema": {"type": "object"},
        },
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"max_items": 1}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    }  # fmt: skip
    assert read(snake, "m") == read(camel, "m")
    assert call_of(generationConfig={"topP": None, "top_p": 1}).sampling.top_p == 1
    with pytest.raises(BadRequest, match="topP and top_p are one field"):
        call_of(generationConfig={"topP": 1, "top_p": 1})


@given(st.from_regex(r"[a-z][a-z0-9]*(_[a-z][a-z0-9]*)*", fullmatch=True))
def test_names_go_there_and_back(name: str) -> None:
    assert proto_path(json_name(name)) == name


def test_sampling_is_read_in_full() -> None:
    call = call_of(generationConfig={
        "temperature": "0.5", "topP": 0.9, "topK": 40.0, "candidateCount": 1, "maxOutputTokens": 9, "seed": 7,
        "stopSequences": ["END", "\n\n"], "presencePenalty": 1, "frequencyPenalty": -1, "responseModalities": ["TEXT"],
    })  # fmt: skip
    assert call.sampling.asked() == {
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "max_tokens": 9, "seed": 7, "stop": ["END", "\n\n"],
        "presence_penalty": 1, "frequency_penalty": -1,
    }  # fmt: skip
    assert call.ignored_fields == ()


# --- function calls and their responses


def test_parallel_calls_of_one_function_stay_two_and_match_by_id_in_any_order() -> None:
    messages = messages_of(
        HI,
        model(ask("ls", {"path": "a"}, id="1"), ask("ls", {"path": "b"}, id="2")),
        user(answer("ls", {"output": "B"}, id="2"), answer("ls", {"output": "A"}, id="1")),
    )
    assert messages[1].tool_calls == (ToolCall("1", "ls", '{"path": "a"}'), ToolCall("2", "ls", '{"path": "b"}'))
    assert [(m.tool_call_id, m.content) for m in messages[2:]] == [("2", "B"), ("1", "A")]


def test_without_ids_responses_match_by_name_and_order_within_the_turn() -> None:
    messages = messages_of(
        HI,
        model(ask("ls", {"path": "a"}), ask("cat"), ask("ls", {"path": "b"})),
        user(answer("cat", {"output": "C"}), answer("ls", {"output": "A"}), answer("ls", {"output": "B"})),
        model(ask("ls", {"path": "c"})),
        user(answer("ls", {"output": "again"})),
    )
    first, second = messages[1].tool_calls, messages[5].tool_calls
    ids = [call.id for call in (*first, *second)]
    assert len(set(ids)) == 4
    answers = {m.content: m.tool_call_id for m in messages if m.role == "tool"}
    assert answers == {"A": ids[0], "C": ids[1], "B": ids[2], "again": ids[3]}


def test_a_response_is_never_that_of_an_earlier_turn() -> None:
    messages = messages_of(HI, model(ask("ls")), HI, model(ask("ls")), user(answer("ls", {"output": "B"})))
    assert messages[-1].tool_call_id == messages[3].tool_calls[0].id != messages[1].tool_calls[0].id


def test_ids_that_the_harness_repeats_become_unique() -> None:
    messages = messages_of(
        HI,
        model(ask("ls", {"path": "a"}, id="x"), ask("ls", {"path": "b"}, id="x")),
        user(answer("ls", {"output": "A"}, id="x"), answer("ls", {"output": "B"}, id="x")),
        model(ask("ls", id="x")),
        user(answer("ls", {"output": "C"}, id="x")),
    )
    ids = [call.id for m in messages for call in m.tool_calls]
    assert len(set(ids)) == 3
    assert [m.tool_call_id for m in messages if m.role == "tool"] == ids


def test_ids_are_the_same_whenever_the_history_is_sent_again() -> None:
    history = [HI, model(ask("ls"), ask("ls")), user(answer("ls", {}), answer("ls", {}))]
    assert messages_of(*history) == messages_of(*history, model({"text": "x"}))[:4]


def test_an_id_that_names_no_call_falls_back_to_the_order() -> None:
    messages = messages_of(HI, model(ask("ls")), user(answer("ls", {"output": "A"}, id="ls_171_0")))
    assert messages[2].tool_call_id == messages[1].tool_calls[0].id


def test_text_and_responses_keep_their_order() -> None:
    messages = messages_of(
        HI, model(ask("a"), ask("b")), user(answer("a", {"output": "1"}), {"text": "x"}, answer("b", {"output": "2"}))
    )
    assert [(m.role, m.content) for m in messages[2:]] == [("tool", "1"), ("user", "x"), ("tool", "2")]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ({"output": "plain\ntext é"}, "plain\ntext é"),
        ({"output": {"n": 1}}, '{"n": 1}'),
        ({"error": "naïve 한"}, '{"error": "naïve 한"}'),
        ({"output": "o", "error": "e"}, '{"output": "o", "error": "e"}'),
        ({"result": "🧑‍🚀"}, '{"result": "🧑‍🚀"}'),
        ({}, "{}"),
    ],
)
def test_a_response_reaches_the_model_unescaped(response: dict[str, Any], text: str) -> None:
    assert messages_of(HI, model(ask("f")), user(answer("f", response)))[2].content == text


def test_the_parts_of_a_response_are_shown() -> None:
    parts = [{"inlineData": {"mimeType": "image/png", "data": PNG, "displayName": "s.png"}}]
    call = call_of(HI, model(ask("f")), user(answer("f", {"output": "see"}, parts=parts)))
    assert call.conversation.messages[2].content == "see\n[image: s.png, image/png, 7 bytes]"
    assert call.ignored_fields == ("contents[].parts[].functionResponse.parts[].inlineData",)


def test_chunks_that_were_recorded_one_by_one_are_one_message() -> None:
    """Google's SDKs keep each object of a stream as a content of its own."""
    streamed = messages_of(HI, model({"text": "Hel"}), model({"text": "lo"}), model(ask("f", id="1"), {"text": ""}), HI)
    whole = messages_of(HI, model({"text": "Hello"}, ask("f", id="1")), HI)
    assert streamed == whole


def test_an_empty_reply_is_still_a_turn() -> None:
    for parts in ([], [{"text": ""}], [{"text": "", "thoughtSignature": thought_signature("r")}]):
        assert messages_of(HI, {"role": "model", "parts": parts}, HI)[1] == Message("assistant", "")


def test_signatures_come_back_on_any_part() -> None:
    ours = thought_signature("reply")
    for known in (ours, ours.replace("+", "-").replace("/", "_"), "skip_thought_signature_validator"):
        signed = {"thoughtSignature": known}
        call = call_of(
            user({"text": "hi", **signed}), model({"text": "x", **signed}, {**ask("f"), **signed}, signed), HI
        )
        assert call.ignored_fields == ()
    foreign = call_of(HI, model({"text": "x", "thoughtSignature": base64.b64encode(b"other").decode()}), HI)
    assert foreign.ignored_fields == ("contents[].parts[].thoughtSignature",)


# --- media and the provider's own tools


def test_media_become_placeholders_in_place() -> None:
    call = call_of(user(
        {"text": "see "}, {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"text": " and "}, {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://b/f.pdf"}},
        {"text": "!"},
    ))  # fmt: skip
    assert call.conversation.messages[0].content == (
        "see [image: image/png, 7 bytes] and [document: application/pdf, gs://b/f.pdf]!"
    )
    assert call.ignored_fields == ("contents[].parts[].fileData", "contents[].parts[].inlineData")


@pytest.mark.parametrize("mime", ["text/plain", "text/markdown; charset=utf-8", "application/json"])
def test_text_documents_are_text(mime: str) -> None:
    data = base64.urlsafe_b64encode("ÿé?>".encode()).decode()
    call = call_of(user({"inlineData": {"mimeType": mime, "data": data}}))
    assert (call.conversation.messages[0].content, call.ignored_fields) == ("ÿé?>", ())


def test_code_that_ran_is_shown() -> None:
    text = messages_of(
        HI,
        model(
            {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        ),
        HI,
    )[1].content
    assert "```python\nprint(1)\n```" in text
    assert "```\n1\n```" in text


# --- tools and tool choice


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


@pytest.mark.parametrize(
    ("config", "constraint"),
    [
        ({"responseMimeType": "text/plain"}, None),
        ({"responseMimeType": "application/json"}, {"json_object": True}),
        (
            {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT", "nullable": True}},
            {"json": {"type": ["object", "null"]}},
        ),
        (
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "array"}},
            {"json": {"type": "array"}},
        ),
        (
            {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a", "b"]}},
            {"choice": ["a", "b"]},
        ),
        (
            {"responseFormat": [{"text": {"mimeType": "application/json", "schema": {"type": "object"}}}]},
            {"json": {"type": "object"}},
        ),
    ],
)
def test_output_formats(config: dict[str, Any], constraint: Any) -> None:
    call = call_of(generationConfig=config)
    assert (call.constraint, call.ignored_fields) == (constraint, ())


@pytest.mark.parametrize(
    ("thinking", "variables", "ignored", "shown"),
    [
        ({"thinkingBudget": 0}, {"enable_thinking": False}, (), False),
        ({"thinkingBudget": -1, "includeThoughts": True}, {}, (), True),
        (
            {"thinkingBudget": 1024},
            {"enable_thinking": True},
            ("generationConfig.thinkingConfig.thinkingBudget",),
            False,
        ),
        (
            {"thinkingLevel": "HIGH", "includeThoughts": True},
            {},
            ("generationConfig.thinkingConfig.thinkingLevel",),
            True,
        ),
    ],
)
def test_thinking(thinking: Any, variables: Any, ignored: Any, shown: bool) -> None:
    call = call_of(generationConfig={"thinkingConfig": thinking})
    assert call.conversation.template_kwargs == variables
    assert call.ignored_fields == ignored
    assert call.options == ({"thoughts": True} if shown else {})


def test_logprobs() -> None:
    assert call_of(generationConfig={"responseLogprobs": True}).options == {"logprobs": True}
    call = call_of(generationConfig={"responseLogprobs": True, "logprobs": 3})
    assert (call.options, call.top_logprobs, call.ignored_fields) == ({"logprobs": True}, 3, ())


def test_nothing_is_dropped_silently() -> None:
    call = call_of(
        user({"text": "x", "video_metadata": {"fps": 1}, "newPart": 1}),
        brand_new={"a": 1}, safety_settings=[{}], labels={"a": "b"}, model="models/other",
        generationConfig={"mediaResolution": "MEDIA_RESOLUTION_LOW", "speech_config": {}, "brandNew": 1},
        tools=[{"functionDeclarations": [{"name": "f", "behavior": "BLOCKING", "response": {"type": "STRING"}}]}],
        toolConfig={"retrievalConfig": {}},
    )  # fmt: skip
    assert call.ignored_fields == (
        "brand_new", "contents[].parts[].newPart", "contents[].parts[].video_metadata", "generationConfig.brandNew",
        "generationConfig.mediaResolution", "generationConfig.speechConfig", "labels", "model", "safetySettings",
        "toolConfig.retrievalConfig", "tools[].functionDeclarations[].behavior",
        "tools[].functionDeclarations[].response",
    )  # fmt: skip


# --- errors


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"contents": None}, "contents", "contents is not specified"),
        ({"contents": []}, "contents", "contents is not specified"),
        ({"contents": ["x"]}, "contents[0]", "Invalid value at 'contents[0]'"),
        ({"contents": [{"role": "wizard", "parts": [{"text": "x"}]}]}, "contents[0].role", "valid role: user, model."),
        ({"contents": [{"role": "user"}]}, "contents[0].parts", "must not be empty"),
        ({"contents": [user({})]}, "contents[0].parts[0].data", "must have one initialized field"),
        ({"contents": [user({"text": 3})]}, "contents[0].parts[0].text", "parts[0].text' (TYPE_STRING), 3"),
        (
            {"contents": [user({"inlineData": {"mimeType": "image/png", "data": "%%"}})]},
            "contents[0].parts[0].inlineData.data", "'contents[0].parts[0].inline_data.data' (TYPE_BYTES)",
        ),
        ({"contents": [HI, user(answer("f", {}))]}, "contents[1].parts[0].functionResponse", "function call turn"),
        ({"contents": [user(ask("f"))]}, "contents[0].parts[0].functionCall", "role model"),
        ({"contents": [model(ask(""))]}, "contents[0].parts[0].functionCall.name", "name is not specified"),
        ({"systemInstruction": "s"}, "systemInstruction", "'system_instruction' (TYPE_MESSAGE), \"s\""),
        ({"generationConfig": {"temperature": "hot"}}, "generationConfig.temperature", "temperature' (TYPE_FLOAT)"),
        ({"generationConfig": {"temperature": 2.5}}, "generationConfig.temperature", "in the range [0, 2]"),
        ({"generationConfig": {"temperature": True}}, "generationConfig.temperature", "TYPE_FLOAT"),
        ({"generationConfig": {"maxOutputTokens": 0}}, "generationConfig.maxOutputTokens", "max_output_tokens must be"),
        ({"generationConfig": {"maxOutputTokens": 1.5}}, "generationConfig.maxOutputTokens", "(TYPE_INT32), 1.5"),
        ({"generationConfig": {"candidateCount": 2}}, "generationConfig.candidateCount", "Multiple candidates"),
        ({"generationConfig": {"stopSequences": [""]}}, "generationConfig.stopSequences", "stop_sequences"),
        ({"generationConfig": {"logprobs": 2}}, "generationConfig.logprobs", "response_logprobs"),
        ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "generationConfig.responseModalities", "TEXT"),
        ({"generationConfig": {"responseMimeType": "image/png"}}, "generationConfig.responseMimeType", "mimetypes"),
        ({"generationConfig": {"responseSchema": {}}}, "generationConfig.responseMimeType", "unsupported"),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": -2}}},
         "generationConfig.thinkingConfig.thinkingBudget", "thinking_budget"),
        ({"tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0].name", "name is not specified"),
        (
            {"tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "WIZARD"}}]}]},
            "tools[0].functionDeclarations[0].parameters.type", "WIZARD",
        ),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "MAYBE"}}},
            "toolConfig.functionCallingConfig.mode", "MAYBE",
        ),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
            "toolConfig.functionCallingConfig.mode", "without function_declarations",
        ),
        (
            {"tools": [{"functionDeclarations": [LS]}],
             "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["rm"]}}},
            "toolConfig.functionCallingConfig.allowedFunctionNames", "'rm'",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_googles_words(change: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read({"contents": [HI], **change}, "m")
    assert caught.value.param == param
    assert words in caught.value.message
    assert error_body(caught.value)["error"]["status"] == "INVALID_ARGUMENT"


def test_a_body_that_is_no_object() -> None:
    with pytest.raises(BadRequest, match="'body'"):
        read([], "m")


def test_cached_contents_are_refused_as_unknown() -> None:
    with pytest.raises(CacheNotFound) as caught:
        call_of(cachedContent="cachedContents/abc")
    assert error_body(caught.value) == {"error": {
        "code": 403, "message": "CachedContent not found (or permission denied)", "status": "PERMISSION_DENIED",
    }}  # fmt: skip


def test_errors_have_googles_shape() -> None:
    wrong = BadRequest("Invalid value at 'a_b' (TYPE_STRING), 3", param="aB", code="invalid_type")
    assert error_body(wrong)["error"]["details"] == [{
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "a_b", "description": wrong.message}],
    }]  # fmt: skip
    assert error_body(EngineUnavailable("loading"))["error"] == {
        "code": 503, "message": "loading", "status": "UNAVAILABLE",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "5s"}],
    }  # fmt: skip
    too_long = error_body(ContextLengthExceeded(5000, 4096))["error"]
    assert too_long == {
        "code": 400, "status": "INVALID_ARGUMENT",
        "message": "The input token count (5000) exceeds the maximum number of tokens allowed (4096).",
    }  # fmt: skip
    for status, name in ((401, "UNAUTHENTICATED"), (404, "NOT_FOUND"), (429, "RESOURCE_EXHAUSTED"), (500, "INTERNAL")):
        assert error_body(EngineRefused(status, "x"))["error"]["status"] == name


# --- counting


def test_count() -> None:
    inner = {"model": "models/m", "contents": [HI], "systemInstruction": {"parts": [{"text": "s"}]},
             "tools": [{"functionDeclarations": [LS]}]}  # fmt: skip
    assert read_count({"contents": [HI]}, "m").conversation.messages == (Message("user", "hi"),)
    assert read_count({"generateContentRequest": inner}, "m") == read(inner, "m")
    with pytest.raises(BadRequest, match="mutually exclusive"):
        read_count({"contents": [HI], "generateContentRequest": inner}, "m")
    reply = types.CountTokensResponse.model_validate({k: v for k, v in count_reply(7).items() if k == "totalTokens"})
    assert (reply.total_tokens, count_reply(7)["totalTokens"]) == (7, 7)


# --- what the official SDK sends, and every field that it knows


def sent_by_the_sdk(contents: Any, config: types.GenerateContentConfig, *, vertex: bool = False) -> dict[str, Any]:
    sent: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"candidates": [{"content": {"role": "model", "parts": [{"text": "x"}]}}]})

    options = types.HttpOptions(client_args={"transport": httpx.MockTransport(handle)}, base_url="http://gemini.test")
    client = genai.Client(api_key="k", vertexai=vertex, http_options=options)
    client.models.generate_content(model="gemini-x", contents=contents, config=config)
    return sent[0]


@pytest.mark.parametrize("vertex", [False, True])
def test_the_sdks_own_request(vertex: bool) -> None:
    contents = [
        types.UserContent("hi"),
        types.ModelContent([types.Part(
            function_call=types.FunctionCall(name="ls", args={"path": "é"}, id="1"),
            thought_signature=base64.b64decode(thought_signature("r")),
        )]),
        types.UserContent([types.Part.from_function_response(name="ls", response={"result": "ü"}),
                           types.Part.from_bytes(data=b"abc", mime_type="image/png")]),
    ]  # fmt: skip
    declared = types.FunctionDeclaration(
        name="ls", description="d",
        parameters=types.Schema(type=types.Type.OBJECT, properties={"path": types.Schema(type=types.Type.STRING)}),
    )  # fmt: skip
    config = types.GenerateContentConfig(
        system_instruction="be brief", temperature=0.5, top_k=3, max_output_tokens=9, stop_sequences=["x"], seed=1,
        tools=[types.Tool(function_declarations=[declared])],
        tool_config=types.ToolConfig(function_calling_config=types.FunctionCallingConfig(
            mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["ls"])),
        thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=0),
        response_mime_type="application/json", response_schema={"type": "OBJECT"},
    )  # fmt: skip
    call = read(sent_by_the_sdk(contents, config, vertex=vertex), "gemini-x")
    assert call.conversation.messages == (
        Message("system", "be brief"), Message("user", "hi"),
        Message("assistant", tool_calls=(ToolCall("1", "ls", '{"path": "é"}'),)),
        Message("tool", '{"result": "ü"}', tool_call_id="1", name="ls"),
        Message("user", "[image: image/png, 3 bytes]"),
    )  # fmt: skip
    assert call.conversation.tools == (Tool("ls", "d", {"type": "object", "properties": {"path": {"type": "string"}}}),)
    assert call.sampling.asked() == {"temperature": 0.5, "top_k": 3, "max_tokens": 9, "stop": ["x"], "seed": 1}
    assert call.tool_choice == ToolChoice("required", ("ls",))
    assert call.constraint == {"json": {"type": "object"}}
    assert (call.conversation.template_kwargs, call.options) == ({"enable_thinking": False}, {"thoughts": True})
    assert call.ignored_fields == ("contents[].parts[].inlineData",)


VALUES: dict[str, Any] = {
    "temperature": 0.3, "topP": 0.3, "topK": 3, "maxOutputTokens": 3, "seed": 3, "presencePenalty": 0.3,
    "frequencyPenalty": 0.3, "stopSequences": ["x"], "candidateCount": 2, "responseLogprobs": False, "logprobs": 3,
    "responseMimeType": "text/plain", "responseSchema": {"type": "OBJECT"},
    "responseJsonSchema": {"type": "object"},
    "responseFormat": [{"text": {"mimeType": "text/plain"}}], "responseModalities": ["IMAGE"],
    "thinkingConfig": {"includeThoughts": True}, "thinkingBudget": 3, "thinkingLevel": "HIGH", "includeThoughts": True,
    "systemInstruction": {"parts": [{"text": "s"}]}, "cachedContent": "cachedContents/x",
    "contents": [model({"text": "?"})],
    "tools": [{"functionDeclarations": [{"name": "g"}]}], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    "functionDeclarations": [{"name": "g"}], "functionCallingConfig": {"mode": "NONE"}, "mode": "NONE",
    "allowedFunctionNames": ["ls"], "name": "other", "description": "other", "parameters": {"type": "OBJECT"},
    "parametersJsonSchema": {"type": "object"}, "role": "function", "parts": [{"text": "other"}], "text": "other",
    "thought": True, "thoughtSignature": base64.b64encode(b"foreign").decode(),
    "inlineData": {"mimeType": "image/png", "data": PNG}, "fileData": {"fileUri": "gs://x", "mimeType": "image/png"},
    "functionCall": {"name": "ls"}, "functionResponse": {"name": "ls", "response": {}}, "id": "other",
    "executableCode": {"code": "1", "language": "PYTHON"}, "codeExecutionResult": {"outcome": "OUTCOME_OK"},
    "toolCall": {"id": "1"}, "toolResponse": {"id": "1"}, "args": {"other": 1}, "response": {"other": 1},
    "mimeType": "audio/wav", "data": "b3RoZXI=", "displayName": "other", "fileUri": "gs://other", "code": "other",
    "language": "OTHER", "output": "other", "outcome": "OUTCOME_FAILED",
}  # fmt: skip
"""A plausible value for each field that is read; any other value will do for one that is only reported."""

DECLARED = {"tools": [{"functionDeclarations": [LS]}]}
CALLED = [HI, model(ask("ls", id="1"))]


def in_part(part: dict[str, Any], *, role: str = "user") -> dict[str, Any]:
    return {"contents": [HI, {"role": role, "parts": [part]}]}


CENSUS: list[tuple[Any, str, Any, dict[str, Any]]] = [
    # the SDK's type, its path, how a value of it becomes a body, its value without the field
    (types.GenerationConfig, "generationConfig", lambda v: {"contents": [HI], "generationConfig": v},
     {"responseMimeType": "application/json", "responseLogprobs": True}),
    (types.ThinkingConfig, "generationConfig.thinkingConfig",
     lambda v: {"contents": [HI], "generationConfig": {"thinkingConfig": v}}, {}),
    (types.Tool, "tools[]", lambda v: {"contents": [HI], "tools": [v]}, {}),
    (types.ToolConfig, "toolConfig", lambda v: {"contents": [HI], **DECLARED, "toolConfig": v}, {}),
    (types.FunctionCallingConfig, "toolConfig.functionCallingConfig",
     lambda v: {"contents": [HI], **DECLARED, "toolConfig": {"functionCallingConfig": v}}, {}),
    (types.FunctionDeclaration, "tools[].functionDeclarations[]",
     lambda v: {"contents": [HI], "tools": [{"functionDeclarations": [v]}]}, {"name": "f"}),
    (types.Content, "contents[]", lambda v: {"contents": [HI, v]}, {"parts": [{"text": "x"}]}),
    (types.Part, "contents[].parts[]", in_part, {"text": "x"}),
    (types.Part, "contents[].parts[]", lambda v: in_part(v, role="model"), {"text": "x"}),
    (types.Blob, "contents[].parts[].inlineData", lambda v: in_part({"inlineData": v}),
     {"mimeType": "image/png", "data": PNG}),
    (types.FileData, "contents[].parts[].fileData", lambda v: in_part({"fileData": v}),
     {"mimeType": "image/png", "fileUri": "gs://x"}),
    (types.ExecutableCode, "contents[].parts[].executableCode", lambda v: in_part({"executableCode": v}), {}),
    (types.CodeExecutionResult, "contents[].parts[].codeExecutionResult",
     lambda v: in_part({"codeExecutionResult": v}), {}),
    (types.FunctionCall, "contents[].parts[].functionCall",
     lambda v: in_part({"functionCall": v}, role="model"), {"name": "ls"}),
    (types.FunctionResponse, "contents[].parts[].functionResponse",
     lambda v: {"contents": [*CALLED, user({"functionResponse": v})]}, {"name": "ls", "response": {"a": 1}}),
    (types.FunctionResponsePart, "contents[].parts[].functionResponse.parts[]",
     lambda v: {"contents": [*CALLED, user(answer("ls", {}, parts=[v]))]}, {}),
    (types.FunctionResponseBlob, "contents[].parts[].functionResponse.parts[].inlineData",
     lambda v: {"contents": [*CALLED, user(answer("ls", {}, parts=[{"inlineData": v}]))]},
     {"mimeType": "image/png", "data": PNG}),
    (types.FunctionResponseFileData, "contents[].parts[].functionResponse.parts[].fileData",
     lambda v: {"contents": [*CALLED, user(answer("ls", {}, parts=[{"fileData": v}]))]},
     {"mimeType": "image/png", "fileUri": "gs://x"}),
]  # fmt: skip

SAYS_NOTHING = {
    ("contents[]", "role"): "a function's content is read as a user's",
    ("contents[].parts[]", "thought"): "a user has no thoughts: the text is text",
    ("contents[].parts[].executableCode", "id"): "it ties the code to the result that follows it",
    ("contents[].parts[].codeExecutionResult", "id"): "it ties the result to the code before it",
    ("contents[].parts[].functionResponse", "id"): "of an unknown call: the name tells it",
}

REFUSED = {
    ("generationConfig", "candidateCount"),
    ("generationConfig", "responseModalities"),
    ("contents[].parts[]", "functionCall"),  # of a user
    ("contents[].parts[]", "functionResponse"),  # of the model, and without a call before it
}


@pytest.mark.parametrize(("kind", "path", "body", "base"), CENSUS, ids=[f"{c[1]}{i}" for i, c in enumerate(CENSUS)])
def test_every_field_of_the_sdk_is_honoured_refused_or_reported(kind: Any, path: str, body: Any, base: Any) -> None:
    unread = read(body(base), "m")
    for field, info in kind.model_fields.items():
        name = info.alias or field
        try:
            call = read(body({**base, name: VALUES.get(name, {"a": 1})}), "m")
        except BadRequest as error:
            if (path, name) not in REFUSED:
                raise AssertionError(f"{path}.{name} is refused") from error
            continue
        reported = set(call.ignored_fields) - set(unread.ignored_fields)
        accounted = _without(call) != _without(unread) or f"{path}.{name}" in reported
        assert accounted or (path, name) in SAYS_NOTHING, f"{path}.{name} is lost"


def test_every_field_of_the_sdks_config_has_its_place() -> None:
    """The config's fields are the body's own or generationConfig's; neither loses one."""
    local = {"httpOptions", "shouldReturnHttpResponse", "automaticFunctionCalling", "automaticContinuation"}
    unread = read({"contents": [HI]}, "m")
    for field, info in types.GenerateContentConfig.model_fields.items():
        name = info.alias or field
        if name in local:
            continue
        try:
            call = read({"contents": [HI], name: VALUES.get(name, {"a": 1})}, "m")
        except (BadRequest, CacheNotFound):
            continue
        assert _without(call) != _without(unread) or name in call.ignored_fields, f"{name} is lost"


def test_every_field_of_the_sdks_schema_reaches_the_model() -> None:
    values = {"type": "ARRAY", "nullable": True, "properties": {"b": {}}, "propertyOrdering": ["b", "a"]}
    base = {"type": "OBJECT", "properties": {"a": {}, "b": {}}}
    without = json.dumps(json_schema(base, "p"))
    for field, info in types.Schema.model_fields.items():
        name = info.alias or field
        assert json.dumps(json_schema({**base, name: values.get(name, "3")}, "p")) != without, name


def _without(call: Call) -> tuple[Any, ...]:
    return (
        call.conversation, call.sampling, call.tool_choice, call.constraint, call.options, call.parallel_tool_calls,
        call.top_logprobs,
    )  # fmt: skip
