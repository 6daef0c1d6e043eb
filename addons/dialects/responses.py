"""OpenAI Responses: reading a request. Its reply is written in `responses_stream`.

What a request continues can be left at the provider: `previous_response_id` names a response whose items come
before its own. Who reads a request looks that up: :func:`read` gives the id in `options`, and read again with the
stored items as `before` it gives the whole conversation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from addons.conversation import Call, Conversation, Message, Sampling, ToolChoice
from addons.dialects.fields import Fields, refuse
from addons.dialects.responses_errors import error_body, previous_response_not_found, socket_error
from addons.dialects.responses_items import Reader, input_items
from addons.dialects.responses_parts import unheeded
from addons.dialects.responses_reply import count_reply, output_items, response_of
from addons.dialects.responses_stream import Emitter, frames
from addons.dialects.responses_tools import Offer, flat, read_tools
from addons.errors import NotFound

__all__ = [
    "CALL_ID",
    "ITEMS",
    "NAME",
    "REPLY_ID",
    "Emitter",
    "count_reply",
    "error_body",
    "frames",
    "input_items",
    "item_references",
    "joined",
    "output_items",
    "previous_response_not_found",
    "read",
    "read_count",
    "response_of",
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


def read(body: Any, before: Sequence[Any] | None = None, references: Mapping[str, Any] | None = None) -> Call:
    """Read a request body.

    Args:
        body: the parsed JSON.
        before: the items of the response that `previous_response_id` names, its own input and output and all before
            them (see :func:`joined`); None while they are not looked up.
        references: stored items by id, for the request's :func:`item_references`.

    Raises:
        BadRequest: naming the field, as the provider would.
        NotFound: a stored prompt, conversation or item that is not here.
    """
    f = Fields(body)
    model = f.need("model", f.text("model"))
    _refuse_remote(f)
    options = _options(f)
    offers: dict[str, Offer] = {}
    read_tools(f.objects("tools"), offers)
    lenient = options["previous_response_id"] is not None and before is None
    reader = Reader(offers, references, lenient=lenient)
    if instructions := f.text("instructions"):
        reader.messages.append(Message("system", instructions))
    f.raw("input")
    reader.read(before or (), set())
    reader.read(input_items(body), f.ignored)
    messages = reader.close()
    if not messages and not lenient and options["generate"] is not False:
        refuse(
            "input",
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.",
            "missing_required_parameter",
        )
    constraint = _text_format(f)
    choice = _tool_choice(f, offers)
    tools = () if choice.mode == "none" else tuple(offer.tool for offer in offers.values())
    sampling = Sampling(
        temperature=f.number("temperature", 0, 2),
        top_p=f.number("top_p", 0, 1),
        max_tokens=f.integer("max_output_tokens", 1),
    )
    parallel = f.flag("parallel_tool_calls") is not False
    stream = bool(f.flag("stream"))
    f.mapping("metadata")
    f.ignore(*_INERT)
    f.close()
    options |= {"offers": {**reader.found, **offers}, "echo": _echo(body, sampling, parallel=parallel)}
    return Call(
        Conversation(messages, tools), sampling, model, stream, tuple(sorted(f.ignored)), choice, parallel,
        constraint, {key: value for key, value in options.items() if value is not None},
    )  # fmt: skip


def read_count(body: Any, before: Sequence[Any] | None = None, references: Mapping[str, Any] | None = None) -> Call:
    """Read the body of a token count: a call's, but the model may be left out. Raises as :func:`read`."""
    unnamed = isinstance(body, dict) and body.get("model") is None
    return read({**body, "model": "default"} if unnamed else body, before, references)


def joined(before: Sequence[Any], body: Any, output: Sequence[Any]) -> list[Any]:
    """What a later request continues: the items before this one's, its own input, and its output.

    Instructions are not among them: they hold for one response only.
    """
    return [*before, *input_items(body), *output]


def item_references(body: Any) -> tuple[str, ...]:
    """The ids of the stored items that a request's input refers to."""
    items = [item for item in input_items(body) if isinstance(item, dict)]
    referring = [i for i in items if i.get("type") == "item_reference" or (i.get("type") is None and "role" not in i)]
    return tuple(item["id"] for item in referring if isinstance(item.get("id"), str))


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
    if (previous := f.text("previous_response_id")) == "":
        refuse("previous_response_id", "Invalid 'previous_response_id': empty string.")
    include = f.strings("include")
    honoured = {"reasoning.encrypted_content", "message.output_text.logprobs"}
    f.ignored.update(f"include[{name}]" for name in include if name not in honoured)
    if f.integer("top_logprobs", 0, 20):
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
    generate = f.flag("generate")  # these two over a WebSocket only
    if (kind := f.text("type")) not in (None, "response.create"):
        refuse("type", f"Invalid value: '{kind}'. Supported values are: 'response.create'.")
    return {
        "previous_response_id": previous,
        "store": f.flag("store") is not False,
        "generate": generate,
        "summary": summary,
        "encrypted": "reasoning.encrypted_content" in include or None,
        "logprobs": "message.output_text.logprobs" in include or None,
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


def _tool_choice(f: Fields, offers: Collection[str]) -> ToolChoice:
    asked = f.raw("tool_choice")
    if asked in (None, "auto"):
        return ToolChoice()
    if asked == "none":
        return ToolChoice("none")
    if isinstance(asked, dict):
        choice = _named_choice(Fields(asked, "tool_choice", f.ignored))
    elif asked == "required":
        choice = ToolChoice("required")
    else:
        refuse("tool_choice", f"Invalid value: {asked!r}. Supported values are: 'none', 'auto', and 'required'.")
    if choice.mode == "required" and not offers:
        refuse("tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.")
    if unknown := sorted(set(choice.names) - set(offers)):
        refuse("tool_choice", f"Tool choice '{unknown[0]}' not found in 'tools' parameter.")
    return choice


def _named_choice(f: Fields) -> ToolChoice:
    """One tool by name, or several by `allowed_tools`."""
    kind = f.need("type", f.text("type"))
    if kind != "allowed_tools":
        name = _chosen(f, kind)
        if name is None:
            refuse(f.path, f"Invalid value for 'tool_choice': tools of type '{kind}' are not served.")
        return ToolChoice("required", (name,))
    mode = f.need("mode", f.text("mode"))
    if mode not in ("auto", "required"):
        refuse(f.at("mode"), f"Invalid value: '{mode}'. Supported values are: 'auto' and 'required'.")
    names = []
    for item in f.objects("tools"):
        kind = item.need("type", item.text("type"))
        name = _chosen(item, kind)
        if name is None:
            item.ignored.add(f"tool_choice.tools[type={kind}]")
        else:
            names.append(name)
    f.close()
    if not names and mode == "required":
        refuse(f.at("tools"), "Invalid value for 'tool_choice.tools': none of these tools is served.")
    return ToolChoice(mode, tuple(names)) if names else ToolChoice("none")


def _chosen(f: Fields, kind: str) -> str | None:
    """The flat name of a chosen tool; None for one that only the provider can run."""
    if kind in ("function", "custom"):
        name = flat(f.need("name", f.text("name")), f.text("namespace"))
        f.close()
        return name
    return kind if kind in ("local_shell", "tool_search") else None


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
