"""Gemini generateContent and streamGenerateContent: reading a request, and counting its tokens.

The model, whether to stream, and in which form are in the URL, not in the body. Contents are read in
`gemini_contents`, schemas in `gemini_schema`; the reply is written in `gemini_stream`.
"""

from __future__ import annotations

from typing import Any

from addons.conversation import Call, Conversation, Sampling, Tool, ToolChoice
from addons.dialects.gemini_contents import read_contents, read_instruction
from addons.dialects.gemini_errors import CacheNotFound, error_body
from addons.dialects.gemini_fields import GoogleFields, violation
from addons.dialects.gemini_format import output_constraint
from addons.dialects.gemini_schema import json_schema, plain_schema
from addons.dialects.gemini_stream import Emitter
from addons.dialects.schemas import resolved

__all__ = ["CALL_ID", "ITEMS", "NAME", "REPLY_ID", "Emitter", "count_reply", "error_body", "read", "read_count"]

NAME = "gemini"
ITEMS = "contents"
REPLY_ID, CALL_ID = "", "function-call-"

_INERT = ("safetySettings", "labels", "store", "serviceTier", "modelArmorConfig")
"""Fields of the provider's own that change nothing in what an open model samples: reported, not refused."""
_INERT_CONFIG = (
    "mediaResolution", "speechConfig", "audioTimestamp", "routingConfig", "modelSelectionConfig", "modelConfig",
    "enableEnhancedCivicAnswers", "enableAffectiveDialog", "imageConfig", "translationConfig",
    "audioTranscriptionConfig", "continuationToken",
)  # fmt: skip
_MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")


def read(body: Any, model: str = "", stream: bool = False, sse: bool = True) -> Call:
    """Read a request body.

    Args:
        body: the parsed JSON.
        model: the model that the URL names.
        stream: whether the URL is streamGenerateContent.
        sse: whether the URL has `alt=sse`; without it a stream is one JSON array that grows.

    Raises:
        BadRequest: naming the field, as the provider would.
        CacheNotFound: the call builds on cached contents.
    """
    f = GoogleFields(body)
    if (cached := f.text("cachedContent")) is not None:
        raise CacheNotFound(cached)
    named = f.text("model")  # batch entries and countTokens repeat it
    if named is not None and named.split("/")[-1] != model.split("/")[-1]:
        f.report("model")
    messages = read_instruction(f) + read_contents(f)
    tools = tuple(tool for item in f.messages("tools") for tool in _tools(item))
    choice = _tool_choice(f, tools)
    if choice.mode == "none":
        tools = ()
    config = f.object("generationConfig") or GoogleFields({}, "generationConfig", f.ignored)
    template_kwargs, include_thoughts = _thinking(config)
    asked_logprobs, top_logprobs = _logprobs(config)
    options = {"thoughts": include_thoughts, "array": stream and not sse, "logprobs": asked_logprobs}
    constraint = output_constraint(config)
    sampling = _sampling(config)
    config.ignore(*_INERT_CONFIG)
    config.close()
    f.ignore(*_INERT)
    f.close()
    return Call(
        Conversation(messages, tools, template_kwargs),
        sampling,
        model,
        stream,
        tuple(sorted(f.ignored)),
        choice,
        constraint=constraint,
        top_logprobs=top_logprobs,
        options={key: value for key, value in options.items() if value},
    )


def read_count(body: Any, model: str = "") -> Call:
    """Read the body of a countTokens call: contents alone, or a whole request under `generateContentRequest`."""
    f = GoogleFields(body)
    inner = f.mapping("generateContentRequest")
    if inner is None:
        return read(body, model)
    if "contents" in f:
        violation("contents", "contents and generate_content_request are mutually exclusive")
    f.close()
    call = read(inner, model)
    for entry in sorted(f.ignored):
        call = call.reporting(entry)
    return call


def count_reply(tokens: int) -> dict[str, Any]:
    """The reply of a countTokens call whose prompt has `tokens` tokens."""
    return {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}


def _sampling(config: GoogleFields) -> Sampling:
    if config.integer("candidateCount", 1) not in (None, 1):
        violation(config.at("candidateCount"), "Multiple candidates is not enabled for this model")
    if {name.upper() for name in config.strings("responseModalities")} - {"TEXT", "MODALITY_UNSPECIFIED"}:
        violation(config.at("responseModalities"), "The requested response modalities are not supported: only TEXT is.")
    stop = config.strings("stopSequences")
    if len(stop) > 5 or "" in stop:
        violation(config.at("stopSequences"), "stop_sequences takes up to five strings, none of them empty.")
    return Sampling(
        temperature=config.number("temperature", 0, 2),
        top_p=config.number("topP", 0, 1),
        top_k=config.integer("topK", 0),
        presence_penalty=config.number("presencePenalty", -2, 2),
        frequency_penalty=config.number("frequencyPenalty", -2, 2),
        seed=config.integer("seed"),
        max_tokens=config.integer("maxOutputTokens", 1),
        stop=stop,
    )


def _logprobs(config: GoogleFields) -> tuple[bool, int]:
    """Whether logprobs are asked for, and how many of the likeliest tokens at each place."""
    asked = config.flag("responseLogprobs") is True
    top = config.integer("logprobs", 0, 20) or 0
    if top and not asked:
        violation(config.at("logprobs"), "logprobs needs response_logprobs to be true.")
    return asked, top


def _thinking(config: GoogleFields) -> tuple[dict[str, Any], bool]:
    """Variables for the chat template, and whether the harness wants to see the reasoning."""
    thinking = config.object("thinkingConfig")
    if thinking is None:
        return {}, False
    variables: dict[str, Any] = {}
    budget = thinking.integer("thinkingBudget", -1)
    if budget is not None and budget >= 0:
        variables["enable_thinking"] = budget > 0
    if budget is not None and budget > 0:
        thinking.report("thinkingBudget")  # thinking is on, but nothing counts its tokens
    thinking.ignore("thinkingLevel")
    include = thinking.flag("includeThoughts") is True
    thinking.close()
    return variables, include


def _tools(item: GoogleFields) -> list[Tool]:
    """The functions of one entry of `tools`. Google's own tools have no form that a chat template can show."""
    tools = [_function(function) for function in item.messages("functionDeclarations")]
    item.close()
    return tools


def _function(item: GoogleFields) -> Tool:
    name = item.need("name", item.text("name"))
    parameters = item.mapping("parameters")
    plain = item.mapping("parametersJsonSchema")
    plain = None if plain is None else plain_schema(plain)
    if parameters is not None and plain is not None:
        violation(item.at("parameters"), "parameters and parameters_json_schema are mutually exclusive.")
    if parameters is not None:
        plain = json_schema(parameters, item.at("parameters"))
    tool = Tool(name, item.text("description") or "", None if plain is None else resolved(plain))
    item.ignore("response", "responseJsonSchema", "behavior")
    item.close()
    return tool


def _tool_choice(f: GoogleFields, tools: tuple[Tool, ...]) -> ToolChoice:
    config = f.object("toolConfig")
    if config is None:
        return ToolChoice()
    calling = config.object("functionCallingConfig")
    config.ignore("retrievalConfig", "includeServerSideToolInvocations")
    config.close()
    if calling is None:
        return ToolChoice()
    mode = calling.enum("mode", _MODES) or "AUTO"
    at = calling.at("allowedFunctionNames")
    names = calling.strings("allowedFunctionNames")
    if mode == "VALIDATED":
        # The model may answer in text as well; only that its calls fit their schemas is not promised here.
        calling.report("mode[VALIDATED]")
    calling.ignore("streamFunctionCallArguments")
    calling.close()
    if mode == "NONE":
        return ToolChoice("none")
    if mode == "ANY" and not tools:
        violation(calling.at("mode"), "Function calling config is set without function_declarations.")
    if unknown := sorted(set(names) - {tool.name for tool in tools}):
        violation(at, f"allowed_function_names: {unknown[0]!r} is none of the function_declarations.")
    return ToolChoice("required" if mode == "ANY" else "auto", names)
