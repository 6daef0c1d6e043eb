"""The Response object and its output items.

Ids are made of the response's own, so that they are equal wherever an item appears, also when the reply is put
together again from the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from addons.conversation import Call, Reply, ToolCall, Usage
from addons.dialects.responses_compaction import compaction_item
from addons.dialects.responses_parts import seal
from addons.dialects.responses_tools import Wire, wire

Status = Literal["in_progress", "completed", "incomplete", "failed"]

_PREFIX = "resp_"
_INDEX = 4
"""Hexadecimal digits of an item's index at the end of its id."""


def item_id(prefix: str, reply_id: str, index: int) -> str:
    """The id of output item `index`, e.g. `msg_...0001`."""
    return f"{prefix}{reply_id.removeprefix(_PREFIX)}{index:0{_INDEX}x}"


def response_of(item: str) -> str:
    """The id of the response that output item `item` belongs to, for looking up an `item_reference`."""
    return _PREFIX + item.partition("_")[2][:-_INDEX]


def reasoning_item(item: str, text: str, call: Call) -> dict[str, Any]:
    """A reasoning item: as a summary where the harness asked for one (only that is shown then), else as content."""
    made: dict[str, Any] = {"id": item, "type": "reasoning", "summary": []}
    if call.options.get("summary"):
        made["summary"] = [{"type": "summary_text", "text": text}]
    else:
        made["content"] = [{"type": "reasoning_text", "text": text}]
    if call.options.get("encrypted"):
        made["encrypted_content"] = seal(text)
    return made


def text_part(text: str, logprobs: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """An `output_text` part."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def message_item(
    item: str, content: Sequence[dict[str, Any]], status: Literal["in_progress", "completed", "incomplete"]
) -> dict[str, Any]:
    """A message item."""
    return {"id": item, "type": "message", "status": status, "role": "assistant", "content": list(content)}


def call_item(reply_id: str, index: int, call: Call, tool_call: ToolCall) -> tuple[dict[str, Any], Wire]:
    """A tool call as item `index`, and how it goes on the wire."""
    found = wire(tool_call, call.options.get("offers", {}))
    return {"id": item_id(found.prefix, reply_id, index), **found.item}, found


def output_items(
    call: Call, reply_id: str, reply: Reply, logprobs: Sequence[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """The output of a finished reply: reasoning, text, calls. A reply that says nothing is an empty message."""
    items: list[dict[str, Any]] = []
    message = reply.message
    if message.reasoning:
        items.append(reasoning_item(item_id("rs_", reply_id, 0), message.reasoning, call))
    if call.compaction:
        return [*items, compaction_item(item_id("cmp_", reply_id, len(items)), message.content)]
    if message.content or not (message.reasoning or message.tool_calls):
        status: Literal["completed", "incomplete"] = "completed"
        if cut_short(reply) and not message.tool_calls:
            status = "incomplete"
        name = item_id("msg_", reply_id, len(items))
        items.append(message_item(name, [text_part(message.content, logprobs)], status))
    for tool_call in message.tool_calls:
        items.append(call_item(reply_id, len(items), call, tool_call)[0])
    return items


def cut_short(reply: Reply) -> bool:
    """Whether the reply is `incomplete`: the limit was reached, or the sampling was broken off."""
    return reply.finish in ("length", "abort")


def response(
    call: Call,
    reply_id: str,
    created: int,
    status: Status,
    output: Sequence[dict[str, Any]] = (),
    *,
    usage: Usage | None = None,
    error: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A Response object. `created` is in seconds since the epoch; what the request asked is said again."""
    return {
        "id": reply_id,
        "object": "response",
        "created_at": created,
        "status": status,
        "background": False,
        "error": error,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": call.model,
        "output": list(output),
        "usage": None if usage is None else usage_of(usage),
        **call.options.get("echo", {}),
    }


def usage_of(usage: Usage) -> dict[str, Any]:
    """A `usage` object."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


def count_reply(tokens: int) -> dict[str, Any]:
    """The reply of `/v1/responses/input_tokens`."""
    return {"object": "response.input_tokens", "input_tokens": tokens}
