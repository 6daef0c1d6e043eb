"""Anthropic Messages: reading a request. Its reply is written by :mod:`addons.dialects.messages_stream`.

What the provider does beyond sampling (caching, tiers, its own tools, editing the context) is nobody's job here:
such fields are reported. One is refused, as the provider refuses it where it is not enabled, since an answer that
ignores it would be a wrong one: `compaction`, which asks for another kind of reply.
"""

from __future__ import annotations

from typing import Any

from addons.conversation import Call, Conversation, Message, Sampling
from addons.dialects import messages_thread
from addons.dialects.continuing import Continuing, LookUp, nothing_stored
from addons.dialects.fields import Fields
from addons.dialects.messages_content import read_messages, read_system
from addons.dialects.messages_errors import error_body, in_provider_words, invalid, refuse
from addons.dialects.messages_stream import Emitter
from addons.dialects.messages_tools import read_choice, read_tools
from addons.errors import BadRequest

__all__ = [
    "CALL_ID",
    "CONTINUING",
    "ITEMS",
    "NAME",
    "REPLY_ID",
    "Emitter",
    "count_reply",
    "error_body",
    "read",
    "read_count",
]

NAME = "messages"
ITEMS = "messages"
REPLY_ID, CALL_ID = "msg_", "toolu_"

_THINKS = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}


CONTINUING = Continuing(messages_thread.previous, messages_thread.after)


def read(body: Any, model: str = "", stored: LookUp = nothing_stored) -> Call:
    """Read a request body.

    Args:
        body: the parsed JSON.
        model: the one in the URL, for the hosts that name it there (Vertex).
        stored: looks up the replies that a thread can continue.

    Raises:
        BadRequest: naming the field, in the provider's words.
        ThreadNotFound: there is no such reply to continue.
    """
    try:
        return _read(messages_thread.whole(body, stored), model, counting=False)
    except BadRequest as error:
        raise in_provider_words(error) from None


def read_count(body: Any, model: str = "", stored: LookUp = nothing_stored) -> Call:
    """Read the body of a token count: as :func:`read`, without `max_tokens`; an assistant message may end it."""
    try:
        return _read(messages_thread.whole(body, stored), model, counting=True)
    except BadRequest as error:
        raise in_provider_words(error) from None


def count_reply(tokens: int) -> dict[str, Any]:
    """The reply to a token count."""
    return {"input_tokens": tokens}


def _read(body: Any, named: str, *, counting: bool) -> Call:
    f = Fields(body)
    model = f.need("model", f.text("model") or named or None)
    if "compaction" in f:
        invalid(f, "compaction", "Extra inputs are not permitted")
    messages = (*read_system(f), *read_messages(f))
    tools = read_tools(f)
    choice, parallel = read_choice(f, tools)
    if choice.mode == "none":
        tools = ()
    variables = _thinking(f)
    messages, prefilled = _prefill(messages, thinks=variables.get("enable_thinking") is True, counting=counting)
    constraint = _output_format(f)
    sampling = _sampling(f, counting=counting)
    stream = bool(f.flag("stream"))
    f.close()
    return Call(
        Conversation(messages, tools, variables, prefilled),
        sampling,
        model,
        stream,
        tuple(sorted(f.ignored)),
        choice,
        parallel,
        constraint,
    )


def _prefill(messages: tuple[Message, ...], *, thinks: bool, counting: bool) -> tuple[tuple[Message, ...], bool]:
    """The conversation, and whether its final message is the beginning of the reply. An empty one begins nothing."""
    final = messages[-1]
    if final.role != "assistant":
        return messages, False
    if final.tool_calls:
        ids = ", ".join(call.id for call in final.tool_calls)
        refuse(
            "messages",
            f"messages: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message.",
        )
    if thinks and not counting:
        refuse(
            "messages",
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        )
    if final.content != final.content.rstrip():
        refuse("messages", "messages: final assistant content cannot end with trailing whitespace")
    if not final.content and not final.reasoning and len(messages) > 1:
        return messages[:-1], False
    return messages, True


def _sampling(f: Fields, *, counting: bool) -> Sampling:
    limit = _integer(f, "max_tokens", 0)
    if not counting:
        f.need("max_tokens", limit)
    stop = f.strings("stop_sequences")
    if "" in stop:
        refuse("stop_sequences", "stop_sequences: each stop sequence must contain at least one character")
    return Sampling(
        temperature=_number(f, "temperature", 0, 1),
        top_p=_number(f, "top_p", 0, 1),
        top_k=_integer(f, "top_k", 0),
        max_tokens=limit,
        stop=stop,
    )


def _thinking(f: Fields) -> dict[str, Any]:
    """Template variables. Without the field the template's own default holds."""
    asked = f.object("thinking")
    if asked is None:
        return {}
    kind = asked.need("type", asked.text("type"))
    if kind not in _THINKS:
        names = ", ".join(f"'{name}'" for name in _THINKS)
        invalid(asked, "type", f"Input should be one of {names}, not {kind!r}")
    if kind == "enabled":
        budget = asked.need("budget_tokens", _integer(asked, "budget_tokens", 1024))
        if budget:
            f.ignored.add("thinking.budget_tokens")
    if kind == "between_tools":
        f.ignored.add("thinking[type=between_tools]")
    asked.close()
    return {"enable_thinking": _THINKS[kind]}


def _output_format(f: Fields) -> dict[str, Any] | None:
    """vLLM's `structured_outputs` for a requested output format; None for plain text."""
    config = f.object("output_config")
    form = config.object("format") if config else None
    form = form or f.object("output_format")
    constraint = None
    if form is not None:
        kind = form.need("type", form.text("type"))
        if kind != "json_schema":
            invalid(form, "type", f"Input should be 'json_schema', not {kind!r}")
        constraint = {"json": form.need("schema", form.mapping("schema"))}
        form.close()
    if config:
        config.close()
    return constraint


def _integer(f: Fields, key: str, low: int) -> int | None:
    value = f.integer(key)
    if value is not None and value < low:
        invalid(f, key, f"Input should be greater than or equal to {low}")
    return value


def _number(f: Fields, key: str, low: int, high: int) -> float | None:
    value = f.number(key)
    if value is not None and value < low:
        invalid(f, key, f"Input should be greater than or equal to {low}")
    if value is not None and value > high:
        invalid(f, key, f"Input should be less than or equal to {high}")
    return value
