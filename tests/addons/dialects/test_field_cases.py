"""Fields and routes that other systems of this kind lose, one by one: each is honoured, refused in the dialect's own
words, or named in the turn's `ignored_fields`.

A test's id is the dialect and the field. What is honoured is told by what the engine is sent, by the prompt's text, or
by the reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.addons.dialects.cases import COMPACT, LS, PWD
from tests.addons.dialects.served import Answered, Served
from tests.addons.dialects.speakers.base import SCHEMA, events

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
GEMINI, GEMINI_ARRAY = "/v1beta/models/g:generateContent", "/v1beta/models/g:streamGenerateContent"
PATHS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES, "gemini": GEMINI}
USER: dict[str, Any] = {"role": "user", "content": "go"}
ASKED: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [USER]},
    "responses": {"model": "m", "input": [USER]},
    "messages": {"model": "m", "max_tokens": 64, "messages": [USER]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "go"}]}]},
}
FUNCTION: dict[str, Any] = {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}
TOOL = {"name": "bash", "input_schema": SCHEMA}
FLAT = {"type": "function", "name": "bash", "parameters": SCHEMA}
DECLARED = {"functionDeclarations": [{"name": "bash", "parametersJsonSchema": SCHEMA}]}
Check = Callable[[Answered], None]


def sends(**params: Any) -> Check:
    """The engine is sent these parameters, and nothing is reported."""

    def check(got: Answered) -> None:
        assert got.turn.ignored_fields == []
        assert {name: got.sent.get(name) for name in params} == params

    return check


def shows(*texts: str, reports: tuple[str, ...] = ()) -> Check:
    """The prompt has these texts once each, in order; these fields are reported and no others."""

    def check(got: Answered) -> None:
        assert got.turn.ignored_fields == sorted(reports)
        at = [got.prompt.find(text) for text in texts]
        assert -1 not in at, got.prompt
        assert at == sorted(at)

    return check


def reports(*fields: str) -> Check:
    """These fields, and no others, are in the record as ignored."""

    def check(got: Answered) -> None:
        assert got.turn.ignored_fields == sorted(fields)

    return check


def refuses(words: str, status: int = 400) -> Check:
    """The call is refused in these words."""

    def check(got: Answered) -> None:
        assert words in got.refused(status)
        assert got.sent == {}

    return check


def constrains(kind: str) -> Check:
    """The engine is sent a grammar of this kind, and the turn is kept from training."""

    def check(got: Answered) -> None:
        assert json.loads(got.sent["structured_outputs"]["structural_tag"])["format"]["type"] == kind
        assert got.turn.untrainable == "constrained decoding"

    return check


def says(**expected: Any) -> Check:
    """The reply has these entries."""

    def check(got: Answered) -> None:
        assert got.turn.ignored_fields == []
        assert {key: got.said[key] for key in expected} == expected

    return check


def _image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


_PNG = _image(type="base64", media_type="image/png", data="iVBORw0KGgo=")
_USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}]}
_ANSWER = {"type": "text", "text": "answer"}
_RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "listed"}
_CALL = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"}
_SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}


def _document(**source: Any) -> dict[str, Any]:
    return {"type": "document", "title": "notes", "source": source}


def _user(*content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}]}


def _parts(*parts: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": list(parts)}]}


def _config(**fields: Any) -> dict[str, Any]:
    return {"generationConfig": fields}


def _choice(*names: str, mode: str = "ANY") -> dict[str, Any]:
    return {"functionCallingConfig": {"mode": mode, **({"allowedFunctionNames": list(names)} if names else {})}}


LINES: list[tuple[str, str, dict[str, Any], Check]] = [
    ("chat", "n-null", {"n": None}, says(object="chat.completion")),
    ("chat", "n-above-1", {"n": 2}, refuses(
        "Invalid 'n': integer above maximum value. Expected a value <= 1, but got 2 instead.")),
    ("chat", "max_completion_tokens", {"max_completion_tokens": 7}, sends(max_tokens=7)),
    ("chat", "max_tokens", {"max_tokens": 7}, sends(max_tokens=7)),
    ("chat", "response_format-json_object", {"response_format": {"type": "json_object"}}, constrains("json_schema")),
    ("chat", "response_format-json_schema", {"response_format": _SCHEMA_FORMAT}, constrains("json_schema")),
    ("chat", "response_format-unknown", {"response_format": {"type": "xml"}}, refuses("'xml'")),
    ("chat", "seed", {"seed": 7}, sends(seed=7)),
    ("chat", "penalties", {"presence_penalty": 0.5, "frequency_penalty": -0.5},
     sends(presence_penalty=0.5, frequency_penalty=-0.5)),
    ("chat", "logit_bias", {"logit_bias": {"7": -100}}, sends(logit_bias={"7": -100})),
    ("chat", "temperature-top_p", {"temperature": 0.5, "top_p": 0.9}, sends(temperature=0.5, top_p=0.9)),
    ("chat", "tool_choice-none", {"tools": [FUNCTION], "tool_choice": "none"}, reports()),
    ("chat", "tool_choice-auto", {"tools": [FUNCTION], "tool_choice": "auto"}, sends(structured_outputs=None)),
    ("chat", "tool_choice-required", {"tools": [FUNCTION], "tool_choice": "required"},
     constrains("tags_with_separator")),
    ("chat", "tool_choice-function", {
        "tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "bash"}}},
     constrains("tags_with_separator")),
    ("chat", "tool_choice-allowed_tools", {"tools": [FUNCTION], "tool_choice": {
        "type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}}},
     constrains("triggered_tags")),
    ("chat", "tool_choice-of-no-tool", {"tool_choice": "required"}, refuses("only allowed when 'tools'")),
    ("chat", "tool-strict", {"tools": [{"type": "function", "function": {**FUNCTION["function"], "strict": True}}]},
     reports("tools[].function.strict")),
    ("chat", "prefix", {"messages": [USER, {"role": "assistant", "content": "It is", "prefix": True}]},
     shows("go", "<|im_start|>assistant\nIt is")),
    ("chat", "unknown", {"next_year": {"a": 1}}, reports("next_year")),
    ("messages", "image-beside-a-result", {"messages": [USER, _USE, {"role": "user", "content": [_RESULT, _PNG]}]},
     shows("listed", "[image", reports=("messages[].content[type=image]",))),
    ("messages", "thinking-enabled", {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048},
     reports("thinking.budget_tokens")),
    ("messages", "thinking-adaptive", {"thinking": {"type": "adaptive"}}, reports()),
    ("messages", "thinking-disabled", {"thinking": {"type": "disabled"}}, reports()),
    ("messages", "thinking-budget-too-small", {"thinking": {"type": "enabled", "budget_tokens": 3}},
     refuses("thinking.budget_tokens: Input should be greater than or equal to 1024")),
    ("messages", "output_config", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
     constrains("json_schema")),
    ("messages", "output_config-effort", {"output_config": {"effort": "low"}}, reports("output_config.effort")),
    ("messages", "output_format", {"output_format": {"type": "json_schema", "schema": SCHEMA}},
     constrains("json_schema")),
    ("messages", "mcp_servers", {"mcp_servers": [{"type": "url", "name": "x", "url": "https://x"}]},
     reports("mcp_servers")),
    ("messages", "context_management", {"context_management": {"edits": []}}, reports("context_management")),
    ("messages", "document-text", _user(_document(type="text", media_type="text/plain", data="the words")),
     shows("notes", "the words")),
    ("messages", "document-pdf", _user(_document(type="base64", media_type="application/pdf", data="JVBERi0=")),
     shows("[document", "notes", reports=("messages[].content[type=document]",))),
    ("messages", "redacted_thinking", {"messages": [
        USER, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, _ANSWER]},
        USER]}, shows("go", "answer", reports=("messages[].content[type=redacted_thinking]",))),
    ("messages", "server-tools", {"messages": [USER, {"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "cats"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "title": "Cats", "url": "https://c", "encrypted_content": "x"}]},
        {"type": "text", "text": "found"}]}, USER]},
     shows("cats", "Cats", "found", reports=("messages[].content[].content[].encrypted_content",))),
    ("messages", "search_result", _user({"type": "search_result", "source": "s", "title": "t", "content": [
        {"type": "text", "text": "the finding"}]}), shows("t, s", "the finding")),
    ("messages", "tool-strict", {"tools": [{**TOOL, "strict": True}]}, reports("tools[].strict")),
    ("messages", "max_tokens-missing", {"max_tokens": None}, refuses("max_tokens: Field required")),
    ("messages", "unknown", {"next_year": {"a": 1}}, reports("next_year")),
    ("responses", "previous_response_id-unknown", {"previous_response_id": "resp_x"}, refuses("resp_x")),
    ("responses", "item_reference-unknown", {"input": [USER, {"type": "item_reference", "id": "msg_x"}]},
     refuses("msg_x", 404)),
    ("responses", "input_file", {"input": [{"role": "user", "content": [
        {"type": "input_file", "filename": "notes.txt", "file_data": "data:text/plain;base64,dGhlIHdvcmRz"}]}]},
     shows("notes.txt", "the words")),
    ("responses", "reasoning-effort", {"reasoning": {"effort": "high"}}, reports("reasoning.effort")),
    ("responses", "verbosity", {"text": {"verbosity": "low"}}, reports("text.verbosity")),
    ("responses", "truncation", {"truncation": "auto"}, reports("truncation")),
    ("responses", "max_tool_calls", {"max_tool_calls": 3}, reports("max_tool_calls")),
    ("responses", "include-unknown", {"include": ["web_search_call.results"]},
     reports("include[web_search_call.results]")),
    ("responses", "text-format", {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
     constrains("json_schema")),
    ("responses", "allowed_tools", {"tools": [FLAT], "tool_choice": {
        "type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "bash"}]}},
     constrains("tags_with_separator")),
    ("responses", "web_search", {"tools": [{"type": "web_search"}]}, reports("tools[type=web_search]")),
    ("responses", "additional_tools", {"input": [{"type": "additional_tools", "role": "developer", "tools": [FLAT]},
                                                 USER]}, shows("bash", "go")),
    ("gemini", "snake_case", {"generation_config": {"max_output_tokens": 7, "top_k": 3}}, sends(max_tokens=7, top_k=3)),
    ("gemini", "camelCase", _config(maxOutputTokens=7, topK=3), sends(max_tokens=7, top_k=3)),
    ("gemini", "cachedContent", {"cachedContent": "cachedContents/x"},
     refuses("CachedContent not found (or permission denied)", 403)),
    ("gemini", "candidateCount", _config(candidateCount=2), refuses("Multiple candidates is not enabled")),
    ("gemini", "inlineData-text", _parts({"inlineData": {"mimeType": "text/plain", "data": "dGhlIHdvcmRz"}}),
     shows("the words")),
    ("gemini", "inlineData-audio", _parts({"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}),
     shows("[audio: audio/wav, 3 bytes]", reports=("contents[].parts[].inlineData",))),
    ("gemini", "functionResponse-parts", {"tools": [DECLARED], "contents": [
        {"role": "user", "parts": [{"text": "go"}]}, {"role": "model", "parts": [{"functionCall": {"name": "bash"}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {"output": "é <ok>"}, "parts": [
            {"inlineData": {"mimeType": "text/plain", "data": "dGhlIHdvcmRz"}}]}}, {"text": "further"}]}]},
     shows("é <ok>\nthe words", "further")),
    ("gemini", "thinkingBudget", _config(thinkingConfig={"thinkingBudget": 100}),
     reports("generationConfig.thinkingConfig.thinkingBudget")),
    ("gemini", "thinkingBudget-0", _config(thinkingConfig={"thinkingBudget": 0}), reports()),
    ("gemini", "thinkingBudget-dynamic", _config(thinkingConfig={"thinkingBudget": -1}), reports()),
    ("gemini", "googleSearch", {"tools": [{"googleSearch": {}}]}, reports("tools[].googleSearch")),
    ("gemini", "codeExecution", {"tools": [{"codeExecution": {}}]}, reports("tools[].codeExecution")),
    ("gemini", "VALIDATED-is-not-ANY", {"tools": [DECLARED], "toolConfig": _choice(mode="VALIDATED")},
     reports("toolConfig.functionCallingConfig.mode[VALIDATED]")),
    ("gemini", "types-in-capitals", {"tools": [{"functionDeclarations": [{"name": "f", "parameters": {
        "type": "OBJECT", "properties": {"a": {"type": "STRING"}}}}]}]}, shows('"type": "object"', '"type": "string"')),
    ("gemini", "several-allowedFunctionNames", {"tools": [DECLARED], "toolConfig": _choice("bash")},
     constrains("tags_with_separator")),
    ("gemini", "allowedFunctionNames-unknown", {"tools": [DECLARED], "toolConfig": _choice("fly")}, refuses("'fly'")),
    ("gemini", "responseSchema", _config(responseMimeType="application/json", responseSchema={"type": "OBJECT"}),
     constrains("json_schema")),
    ("gemini", "responseJsonSchema", _config(responseMimeType="application/json", responseJsonSchema=SCHEMA),
     constrains("json_schema")),
    ("gemini", "stopSequences", _config(stopSequences=["x"]), reports()),
    ("gemini", "unknown", {"nextYear": {"a": 1}}, reports("nextYear")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "change", "check"), [(line[0], *line[2:]) for line in LINES], ids=[f"{d}-{n}" for d, n, *_ in LINES]
)
def test_no_field_is_lost(served: Served, dialect: str, change: dict[str, Any], check: Check) -> None:
    body = {**ASKED[dialect], **change}
    says_ = COMPACT if re.search("tools?_", json.dumps(change)) else "ok"
    check(served.call(PATHS[dialect], body, says_))


@pytest.mark.parametrize("stream", [False, True])
def test_chat_parallel_tool_calls_false(served: Served, stream: bool) -> None:
    body = {**ASKED["chat"], "tools": [FUNCTION], "parallel_tool_calls": False, "stream": stream}
    got = served.call(CHAT, body, LS + PWD)
    assert (got.turn.finish, got.turn.untrainable) == ("tool_calls", None)
    assert b"pwd" not in got.response.content


def test_chat_says_nothing_of_the_engines(served: Served) -> None:
    for stream in (False, True):
        got = served.call(CHAT, {**ASKED["chat"], "stream": stream})
        assert b"token_ids" not in got.response.content
        assert b"logprob" not in got.response.content.replace(b'"logprobs":null', b"")


@pytest.mark.parametrize("include", [False, True])
def test_chat_a_usage_chunk_only_when_asked_and_last(served: Served, include: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if include else {}
    got = served.call(CHAT, {**ASKED["chat"], "stream": True, **options})
    chunks = [data for kind, data in events(got.response.content) if kind is None][:-1]
    assert [chunk.get("choices") == [] for chunk in chunks] == [False] * (len(chunks) - 1) + [include]
    assert all(("usage" in chunk) is include for chunk in chunks)


def test_messages_a_malformed_call_is_never_run(served: Served) -> None:
    broken = COMPACT.replace('"ls"}', '"ls"')
    got = served.call(MESSAGES, {**ASKED["messages"], "tools": [TOOL]}, broken)
    assert got.said["content"] == [{"type": "text", "text": broken}]
    assert got.said["stop_reason"] == "end_turn"


def test_gemini_without_sse_is_one_growing_array(served: Served) -> None:
    got = served.call(GEMINI_ARRAY, ASKED["gemini"], "two words")
    objects = got.said
    assert "".join(part["text"] for o in objects for part in o["candidates"][0]["content"]["parts"]) == "two words"
    assert [("finishReason" in o["candidates"][0]) for o in objects] == [False] * (len(objects) - 1) + [True]
