"""OpenAI Responses: reading a request. Its reply is written in `responses_stream`.

What a request continues can be left at the provider: `previous_response_id` names a response whose items come
before its own, an `item_reference` one of them. Both are looked up in what the caller left here.
"""

from __future__ import annotations

from typing import Any

from addons.conversation import Call, Conversation, Message, Reply, Sampling
from addons.dialects.continuing import Continuing, LookUp, nothing_stored
from addons.dialects.fields import Fields, refuse
from addons.dialects.responses_choice import read_choice
from addons.dialects.responses_compaction import REQUEST, retained
from addons.dialects.responses_errors import error_body, socket_error
from addons.dialects.responses_items import Reader
from addons.dialects.responses_parts import unheeded
from addons.dialects.responses_reply import count_reply, output_items
from addons.dialects.responses_state import before, given, previous
from addons.dialects.responses_stream import Emitter, frames
from addons.dialects.responses_tools import Offer, read_tools
from addons.errors import NotFound

__all__ = [
    "CALL_ID",
    "CONTINUING",
    "ITEMS",
    "NAME",
    "REPLY_ID",
    "Emitter",
    "count_reply",
    "error_body",
    "frames",
    "read",
    "read_count",
    "socket_error",
]

NAME = "responses"
ITEMS = "input"
REPLY_ID, CALL_ID = "resp_", "call_"

_INERT = (
    "user", "service_tier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier",
    "max_tool_calls", "context_management", "moderation", "access_programs", "image", "background_options",
)  # fmt: skip
"""Fields of the provider's own that change nothing in what an open model samples: reported, not refused."""
_ECHOED = (
    "instructions", "max_output_tokens", "max_tool_calls", "previous_response_id", "prompt_cache_key",
    "safety_identifier", "user",
)  # fmt: skip
"""Fields that a Response object repeats as they were asked, null where they were not."""


def read(body: Any, stored: LookUp = nothing_stored, *, socket: bool = False, compact: bool = False) -> Call:
    """Read a request body.

    Args:
        body: the parsed JSON.
        stored: looks up the responses that the request can continue or refer to.
        socket: it is a message of a WebSocket, which says so and always streams.
        compact: a summary is asked for that will stand for the conversation.

    Raises:
        BadRequest: naming the field, as the provider would; also for an unknown `previous_response_id`.
        NotFound: a stored prompt, conversation or item that is not here.
    """
    f = Fields(body)
    if socket and (kind := f.text("type")) != "response.create":
        refuse("type", f"Invalid value: {kind!r}. Supported values are: 'response.create'.")
    model = f.need("model", f.text("model"))
    _refuse_remote(f)
    generate = not socket or f.flag("generate") is not False
    options = _options(f)
    offers: dict[str, Offer] = {}
    read_tools(f.objects("tools"), offers)
    items, own = before(body, stored), given(body, stored)
    reader = Reader(offers)
    if instructions := f.text("instructions"):
        reader.messages.append(Message("system", instructions))
    f.raw("input")
    reader.read(items, set())
    reader.read(own, f.ignored)
    messages = reader.close()
    if not messages and generate:
        refuse(
            "input",
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.",
            "missing_required_parameter",
        )
    if compaction := compact or reader.triggered:
        messages = (*messages, Message("user", REQUEST))
    constraint = _text_format(f)
    choice = read_choice(f, offers)
    tools = () if choice.mode == "none" else tuple(offer.tool for offer in offers.values())
    sampling = Sampling(
        temperature=f.number("temperature", 0, 2),
        top_p=f.number("top_p", 0, 1),
        max_tokens=f.integer("max_output_tokens", 1),
    )
    parallel = f.flag("parallel_tool_calls") is not False
    stream = bool(f.flag("stream")) or socket
    f.mapping("metadata")
    f.ignore(*_INERT)
    f.close()
    top_logprobs = options.pop("top_logprobs") or 0
    options |= {"offers": {**reader.found, **offers}, "echo": _echo(body, sampling, parallel=parallel)}
    if compact:
        options["retained"] = retained([*items, *own])
    return Call(
        Conversation(messages, tools), sampling, model, stream, tuple(sorted(f.ignored)), choice, parallel,
        constraint, {key: value for key, value in options.items() if value is not None},
        generate=generate, compaction=compaction, top_logprobs=top_logprobs,
    )  # fmt: skip


def read_count(body: Any, stored: LookUp = nothing_stored) -> Call:
    """Read the body of a token count: a call's, but the model may be left out. Raises as :func:`read`."""
    unnamed = isinstance(body, dict) and body.get("model") is None
    return read({**body, "model": "default"} if unnamed else body, stored)


def _after(stored: LookUp, body: dict[str, Any], reply_id: str, reply: Reply | None) -> list[Any]:
    """The items that a later request continues: those before this one, its own input, and its output.

    Instructions are not among them: they hold for one response only.
    """
    items = [*before(body, stored), *given(body, stored)]
    if reply is None:
        return items
    # Only a message of a WebSocket says what it is.
    call = read(body, stored, socket="type" in body)
    output = output_items(call, reply_id, reply)
    return [*retained(items), *output] if call.compaction else [*items, *output]


CONTINUING = Continuing(previous, _after)


def _refuse_remote(f: Fields) -> None:
    """Refuse what stands in the provider's own stores, or is to be answered later from there."""
    if f.flag("background"):
        refuse("background", "Invalid value for 'background': responses in the background are not served.")
    conversation = f.raw("conversation")
    if conversation is not None:
        name = conversation.get("id") if isinstance(conversation, dict) else conversation
        raise NotFound(f"Conversation with id '{name}' not found.", param="conversation", code="not_found")
    if (prompt := f.mapping("prompt")) is not None:
        raise NotFound(f"Prompt with id '{prompt.get('id')}' not found.", param="prompt", code="not_found")


def _options(f: Fields) -> dict[str, Any]:
    """What is needed again: by the emitter, or by who looks up and stores."""
    if f.text("previous_response_id") == "":
        refuse("previous_response_id", "Invalid 'previous_response_id': empty string.")
    include = f.strings("include")
    honoured = {"reasoning.encrypted_content", "message.output_text.logprobs"}
    f.ignored.update(f"include[{name}]" for name in include if name not in honoured)
    logprobs, top = "message.output_text.logprobs" in include, f.integer("top_logprobs", 0, 20)
    if top and not logprobs:  # then no part of the reply has a place for them
        unheeded(f, "top_logprobs")
    if f.text("truncation") == "auto":
        unheeded(f, "truncation")
    if (stream_options := f.object("stream_options")) is not None:
        if stream_options.flag("include_obfuscation"):
            unheeded(stream_options, "include_obfuscation")
        stream_options.close()
    summary = None
    if (reasoning := f.object("reasoning")) is not None:
        summary = reasoning.text("summary") or reasoning.text("generate_summary")
        reasoning.ignore("effort")
        reasoning.close()
    return {
        "store": f.flag("store") is not False,
        "summary": summary,
        "encrypted": "reasoning.encrypted_content" in include or None,
        "logprobs": logprobs or None,
        "top_logprobs": top if logprobs else None,
    }


def _text_format(f: Fields) -> dict[str, Any] | None:
    """vLLM's `structured_outputs` for a requested output format; None for plain text."""
    text = f.object("text")
    if text is None:
        return None
    text.ignore("verbosity")
    constraint: dict[str, Any] | None = None
    if (form := text.object("format")) is not None:
        kind = form.need("type", form.text("type"))
        if kind == "json_schema":
            constraint = {"json": form.need("schema", form.mapping("schema"))}
            form.need("name", form.text("name"))
            form.ignore("description")
            form.flag("strict")  # the constraint always holds
        elif kind == "json_object":
            constraint = {"json_object": True}
        elif kind != "text":
            allowed = "'json_object', 'json_schema', and 'text'"
            refuse(form.at("type"), f"Invalid value: '{kind}'. Supported values are: {allowed}.")
        form.close()
    text.close()
    return constraint


def _echo(body: dict[str, Any], sampling: Sampling, *, parallel: bool) -> dict[str, Any]:
    """What every Response object repeats of its request, defaults filled in."""
    reasoning, text = body.get("reasoning") or {}, body.get("text") or {}
    return {
        **{key: body.get(key) for key in _ECHOED},
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": parallel,
        "reasoning": {
            "effort": reasoning.get("effort"),
            "summary": reasoning.get("summary") or reasoning.get("generate_summary"),
        },
        "service_tier": "default",
        "store": body.get("store") is not False,
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "text": {"format": text.get("format") or {"type": "text"}, "verbosity": text.get("verbosity") or "medium"},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": body.get("top_logprobs") or 0,
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "truncation": body.get("truncation") or "disabled",
    }
