"""What the official SDK sends, and every field that it knows: honoured, refused, or reported."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, get_args

import httpx
import pytest
from google import genai
from google.genai import types
from pydantic import BaseModel

from addons.conversation import Call, Message, Tool, ToolCall, ToolChoice
from addons.dialects.gemini import read
from addons.dialects.gemini_errors import CacheNotFound
from addons.dialects.gemini_schema import json_schema
from addons.dialects.gemini_signature import thought_signature
from addons.errors import BadRequest
from tests.addons.dialects.gemini_bodies import HI, LS, PNG, answer, ask, model, user


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

VALUES_AT: dict[tuple[str, str], Any] = {
    ("generationConfig.responseFormat[]", "text"): {"mimeType": "application/json"},
    ("generationConfig.responseFormat[].text", "mimeType"): "text/plain",
    ("generationConfig.responseFormat[].text", "schema"): {"type": "object"},
}
"""The same where one name means two things."""


def value_of(path: str, name: str) -> Any:
    """A plausible value for a field."""
    return VALUES_AT.get((path, name), VALUES.get(name, {"a": 1}))


DECLARED = {"tools": [{"functionDeclarations": [LS]}]}
CALLED = [HI, model(ask("ls", id="1"))]


def in_part(part: dict[str, Any], *, role: str = "user") -> dict[str, Any]:
    return {"contents": [HI, {"role": role, "parts": [part]}]}


CENSUS: list[tuple[Any, str, Any, dict[str, Any]]] = [
    # the SDK's type, its path, how a value of it becomes a body, its value without the field
    (types.GenerationConfig, "generationConfig", lambda v: {"contents": [HI], "generationConfig": v},
     {"responseMimeType": "application/json", "responseLogprobs": True}),
    (types.ResponseFormat, "generationConfig.responseFormat[]",
     lambda v: {"contents": [HI], "generationConfig": {"responseFormat": [v]}}, {}),
    (types.TextResponseFormat, "generationConfig.responseFormat[].text",
     lambda v: {"contents": [HI], "generationConfig": {"responseFormat": [{"text": v}]}},
     {"mimeType": "APPLICATION_JSON"}),
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
    ("generationConfig.responseFormat[]", "audio"),
    ("generationConfig.responseFormat[]", "image"),
    ("generationConfig.responseFormat[]", "video"),
    ("contents[].parts[]", "functionCall"),  # of a user
    ("contents[].parts[]", "functionResponse"),  # of the model, and without a call before it
}


@pytest.mark.parametrize(("kind", "path", "body", "base"), CENSUS, ids=[f"{c[1]}{i}" for i, c in enumerate(CENSUS)])
def test_every_field_of_the_sdk_is_honoured_refused_or_reported(kind: Any, path: str, body: Any, base: Any) -> None:
    unread = read(body(base), "m")
    for field, info in kind.model_fields.items():
        name = info.alias or field
        try:
            call = read(body({**base, name: value_of(path, name)}), "m")
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


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    """The SDK's own types in a field's type."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for argument in get_args(hint):
        yield from _models(argument)


ROOTS = {types.GenerationConfig, types.Tool, types.ToolConfig, types.Content}
"""What a body holds, beside what the test of the config's fields has."""
WHOLE = {types.Schema}
"""Types that have a test of their own."""


def test_every_type_that_is_read_has_its_census() -> None:
    """What is below a field that is reported, or refused, is reported with it; whatever else holds fields is here."""
    counted = {kind for kind, *_ in CENSUS} | WHOLE
    missing = set(ROOTS) - counted
    for kind, path, body, base in CENSUS:
        for field, info in kind.model_fields.items():
            name = info.alias or field
            below = set(_models(info.annotation)) - counted
            if not below:
                continue
            try:
                call = read(body({**base, name: value_of(path, name)}), "m")
            except BadRequest:
                continue
            if f"{path}.{name}" not in call.ignored_fields:
                missing |= below
    assert not missing
