from __future__ import annotations

from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from addons.conversation import Message
from addons.dialects.gemini import count_reply, read, read_count
from addons.dialects.gemini_fields import json_name, proto_path
from addons.errors import BadRequest
from tests.addons.dialects.gemini_bodies import HI, LS, PNG, call_of, user


def test_a_plain_call_takes_its_model_and_stream_from_the_url() -> None:
    call = read({"contents": [HI]}, "gemini-x", True, True)
    assert call.conversation.messages == (Message("user", "hi"),)
    assert (call.model, call.stream, call.ignored_fields, call.sampling.asked()) == ("gemini-x", True, (), {})
    assert call.options == {}
    assert read({"contents": [HI]}, "m", True, sse=False).options == {"array": True}
    assert read({"contents": [HI]}, "m", False, sse=False).options == {}


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
            # As Google's own CLI writes it.
            {
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "OBJECT", "properties": {"type": {"type": "STRING", "const": None}}},
            },
            {"json": {"type": "object", "properties": {"type": {"type": "string", "const": None}}}},
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
