"""OpenAI Chat Completions: reading a request. Its reply is written in `chat_stream`."""

from __future__ import annotations

from typing import Any

from addons.conversation import Call, Conversation, Sampling
from addons.dialects.chat_messages import read_messages
from addons.dialects.chat_stream import Emitter, error_body
from addons.dialects.chat_tools import read_choice, read_tools
from addons.dialects.fields import Fields, refuse

__all__ = ["CALL_ID", "ITEMS", "NAME", "REPLY_ID", "Emitter", "error_body", "read"]

NAME = "chat"
ITEMS = "messages"
REPLY_ID, CALL_ID = "chatcmpl-", "call_"

_INERT = (
    "user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "safety_identifier", "verbosity", "prediction", "moderation",
    "web_search_options", "reasoning_effort",
)  # fmt: skip
"""Fields of the provider's own that change nothing in what an open model samples: reported, not refused."""


def read(body: Any, provider: str = "", named: str = "") -> Call:
    """Read a request body that was sent to `provider` (of the providers table).

    `named` is the model in the URL, for the hosts that have it there (Azure's deployments).

    Raises:
        BadRequest: naming the field, as the provider would.
    """
    f = Fields(body)
    model = f.need("model", f.text("model") or named or None)
    messages, prefilled = read_messages(f)
    tools = read_tools(f)
    constraint = _response_format(f)
    choice = read_choice(f, tools)
    if choice.mode == "none":
        tools = ()
    if (n := f.integer("n", 1)) not in (None, 1):
        says = f"Invalid 'n': integer above maximum value. Expected a value <= 1, but got {n} instead."
        refuse("n", says, "integer_above_max_value")
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
    sampling = _sampling(f)
    f.ignore(*_INERT)
    f.close()
    # Mistral streams a tool call in one piece, its SDK takes no other, and always tells the usage.
    mistral = provider == "mistral"
    options: dict[str, Any] = {
        "include_usage": include_usage or mistral, "logprobs": logprobs, "whole_tool_calls": mistral,
    }  # fmt: skip
    return Call(
        Conversation(messages, tools, continue_final_message=prefilled),
        sampling,
        model,
        stream,
        tuple(sorted(f.ignored)),
        choice,
        parallel,
        constraint,
        top_logprobs=top or 0,
        options={key: value for key, value in options.items() if value},
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
