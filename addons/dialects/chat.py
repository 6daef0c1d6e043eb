"""OpenAI Chat Completions: reading a request. Its reply is written in `chat_stream`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from addons.conversation import (
    Call,
    Conversation,
    Message,
    Sampling,
    Tool,
    ToolCall,
    ToolChoice,
)
from addons.dialects.chat_stream import Emitter, error_body
from addons.dialects.fields import Fields, refuse, wrong_type
from addons.dialects.schemas import resolved

__all__ = ["CALL_ID", "ITEMS", "NAME", "REPLY_ID", "Emitter", "error_body", "read"]

NAME = "chat"
ITEMS = "messages"
REPLY_ID, CALL_ID = "chatcmpl-", "call_"

_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_INERT = (
    "user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "safety_identifier", "verbosity", "prediction", "moderation",
    "web_search_options", "reasoning_effort",
)  # fmt: skip
"""Fields of the provider's own that change nothing in what an open model samples: reported, not refused."""


def read(body: Any) -> Call:
    """Read a request body.

    Raises:
        BadRequest: naming the field, as the provider would.
    """
    f = Fields(body)
    model = f.need("model", f.text("model"))
    messages = _messages(f)
    tools = tuple(tool for item in f.objects("tools") if (tool := _tool(item)) is not None)
    tools += tuple(_function(item) for item in f.objects("functions"))
    constraint = _response_format(f)
    choice = _tool_choice(f, tools)
    if choice.mode == "none":
        tools = ()
    if (n := f.integer("n", 1)) not in (None, 1):
        refuse("n", f"Invalid value for 'n': {n} completions of one call are not served; ask {n} times.")
    if "modalities" in f and f.strings("modalities") != ("text",):
        refuse("modalities", "Invalid value for 'modalities': only ['text'] is served.")
    if "audio" in f:
        refuse("audio", "Invalid value for 'audio': this model has no audio output.")
    parallel = f.flag("parallel_tool_calls") is not False
    stream = bool(f.flag("stream"))
    stream_options = f.object("stream_options")
    include_usage = bool(stream_options.flag("include_usage")) if stream_options else False
    if stream_options:
        stream_options.close()
    logprobs = bool(f.flag("logprobs"))
    if (top := f.integer("top_logprobs", 0, 20)) and not logprobs:
        refuse("top_logprobs", "Invalid value for 'top_logprobs': it needs 'logprobs' to be true.")
    if top:
        f.ignored.add("top_logprobs")
    sampling = _sampling(f)
    f.ignore(*_INERT)
    f.close()
    options: dict[str, Any] = {"include_usage": include_usage, "logprobs": logprobs}
    return Call(
        Conversation(messages, tools),
        sampling,
        model,
        stream,
        tuple(sorted(f.ignored)),
        choice,
        parallel,
        constraint,
        {key: value for key, value in options.items() if value},
    )


def _sampling(f: Fields) -> Sampling:
    limit = f.integer("max_completion_tokens", 1)
    older = f.integer("max_tokens", 1)
    bias = f.mapping("logit_bias")
    for token, value in (bias or {}).items():
        if not token.isdigit() or isinstance(value, bool) or not isinstance(value, int | float):
            refuse("logit_bias", f"Invalid value for 'logit_bias': {token!r}: {value!r} is no token id and bias.")
    stop = f.strings("stop")
    if len(stop) > 4 or "" in stop:
        refuse("stop", "Invalid value for 'stop': it takes one to four strings, none of them empty.")
    return Sampling(
        temperature=f.number("temperature", 0, 2),
        top_p=f.number("top_p", 0, 1),
        top_k=f.integer("top_k", -1),
        min_p=f.number("min_p", 0, 1),
        presence_penalty=f.number("presence_penalty", -2, 2),
        frequency_penalty=f.number("frequency_penalty", -2, 2),
        seed=f.integer("seed", -(2**63), 2**63 - 1),
        max_tokens=limit if limit is not None else older,
        stop=stop,
        logit_bias=bias or None,
    )


def _messages(f: Fields) -> tuple[Message, ...]:
    if "messages" not in f:
        f.need("messages", None)
    items = f.objects("messages")
    if not items:
        refuse("messages", "Invalid 'messages': empty array. Expected an array with minimum length 1.")
    messages: list[Message] = []
    known: set[str] = set()
    for item in items:
        message = _message(item)
        known.update(call.id for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id not in known and message.name is None:
            refuse(
                item.at("tool_call_id"),
                f"Invalid parameter: '{item.at('tool_call_id')}' {message.tool_call_id!r} answers no tool call "
                "of the messages before it.",
            )
        messages.append(message)
    return tuple(messages)


def _message(item: Fields) -> Message:
    role = item.need("role", item.text("role"))
    if role not in _ROLES:
        allowed = ", ".join(sorted(_ROLES))
        refuse(
            item.at("role"),
            f"Invalid value for '{item.at('role')}': '{role}'. Supported values are: {allowed}.",
        )
    calls = tuple(_tool_call(call, item.ignored) for call in item.objects("tool_calls"))
    if older := item.object("function_call"):
        calls += (ToolCall("call_0", older.need("name", older.text("name")), older.text("arguments") or "{}"),)
        older.close()
    content = _content(item, required=role != "assistant")
    reasoning = item.text("reasoning_content") or item.text("reasoning") or ""
    item.ignore("reasoning", "reasoning_details", "refusal", "annotations", "audio")
    tool_call_id = item.text("tool_call_id")
    if role == "tool":
        item.need("tool_call_id", tool_call_id)
    if role == "function":
        role, tool_call_id = "tool", "call_0"
    message = Message(role, content, reasoning, calls, tool_call_id, item.text("name"))
    item.close()
    return message


def _content(item: Fields, *, required: bool) -> str:
    value = item.raw("content")
    if value is None:
        if required:
            item.need("content", None)
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        wrong_type(item.at("content"), "a string or an array of parts", value)
    texts: list[str] = []
    for index, raw in enumerate(value):
        part = Fields(raw, f"{item.at('content')}[{index}]", item.ignored)
        kind = part.need("type", part.text("type"))
        if kind not in ("text", "refusal"):
            refuse(
                part.at("type"),
                f"Invalid content type at '{part.path}': {kind!r} is not served by this text model.",
            )
        texts.append(part.need(kind, part.text(kind)))
        part.close()
    return "".join(texts)


def _tool_call(call: Fields, ignored: set[str]) -> ToolCall:
    kind = call.text("type") or "function"
    if kind != "function":
        refuse(
            call.at("type"),
            f"Invalid value for '{call.at('type')}': '{kind}'. Only calls of type 'function' are served.",
        )
    function = call.need("function", call.object("function"))
    read_call = ToolCall(
        call.need("id", call.text("id")),
        function.need("name", function.text("name")),
        function.need("arguments", function.text("arguments")),
    )
    call.raw("index")  # stream accumulators leave it in; it says nothing that the order does not
    function.close()
    call.close()
    return read_call


def _tool(item: Fields) -> Tool | None:
    kind = item.need("type", item.text("type"))
    if kind != "function":
        # Built-in and custom tools have no form a chat template can show; the record says so.
        item.ignored.add(f"tools[type={kind}]")
        return None
    tool = _function(item.need("function", item.object("function")))
    item.close()
    return tool


def _function(item: Fields) -> Tool:
    name, description = item.need("name", item.text("name")), item.text("description") or ""
    schema = item.mapping("parameters")
    tool = Tool(name, description, None if schema is None else resolved(schema))
    item.ignore("strict")
    item.close()
    return tool


def _tool_choice(f: Fields, tools: Sequence[Tool]) -> ToolChoice:
    key = "tool_choice" if "tool_choice" in f else "function_call"
    asked = f.raw(key)
    if asked in (None, "auto"):
        return ToolChoice()
    if asked == "none":
        return ToolChoice("none")
    if asked == "required":
        choice = ToolChoice("required")
    elif isinstance(asked, dict):
        choice = _named_choice(Fields(asked, key, f.ignored))
    else:
        refuse(key, f"Invalid value for '{key}': {asked!r}. Supported values are: none, auto, required, or an object.")
    if choice.mode == "required" and not tools:
        refuse(key, f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.")
    if unknown := sorted(set(choice.names) - {tool.name for tool in tools}):
        refuse(key, f"Invalid value for '{key}': {unknown[0]!r} is none of the tools.")
    return choice


def _named_choice(f: Fields) -> ToolChoice:
    """One function by name, several by `allowed_tools`, or the deprecated `{"name": ...}`."""
    kind = f.text("type") or "function"
    if kind == "allowed_tools":
        allowed = f.need("allowed_tools", f.object("allowed_tools"))
        mode = allowed.need("mode", allowed.text("mode"))
        if mode not in ("auto", "required"):
            refuse(allowed.at("mode"), f"Invalid value for '{allowed.at('mode')}': {mode!r}.")
        names = tuple(_function_name(tool) for tool in allowed.objects("tools"))
        allowed.close()
        return ToolChoice(mode, names)
    if kind != "function":
        refuse(f.at("type"), f"Invalid value for '{f.at('type')}': {kind!r} is not served.")
    return ToolChoice("required", (_function_name(f),))


def _function_name(f: Fields) -> str:
    f.raw("type")
    inner = f.object("function")
    name: str = f.need("name", f.text("name")) if inner is None else inner.need("name", inner.text("name"))
    if inner is not None:
        inner.close()
    f.close()
    return name


def _response_format(f: Fields) -> dict[str, Any] | None:
    """vLLM's `structured_outputs` for a requested output format; None for plain text."""
    form = f.object("response_format")
    if form is None:
        return None
    kind = form.need("type", form.text("type"))
    constraint: dict[str, Any] | None = None
    if kind == "json_object":
        constraint = {"json_object": True}
    elif kind == "json_schema":
        described = form.need("json_schema", form.object("json_schema"))
        constraint = {"json": described.need("schema", described.mapping("schema"))}
        described.ignore("name", "description", "strict")
        described.close()
    elif kind != "text":
        allowed = "text, json_object, json_schema"
        refuse(
            form.at("type"),
            f"Invalid value for 'response_format.type': '{kind}'. Supported values are: {allowed}.",
        )
    form.close()
    return constraint
