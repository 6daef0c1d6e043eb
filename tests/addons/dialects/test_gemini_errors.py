from __future__ import annotations

from typing import Any

import pytest

from addons.dialects.gemini import error_body, read
from addons.dialects.gemini_errors import CacheNotFound
from addons.errors import BadRequest, ContextLengthExceeded, EngineRefused, EngineUnavailable
from tests.addons.dialects.gemini_bodies import HI, LS, answer, ask, call_of, model, user


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
