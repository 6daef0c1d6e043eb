"""Messages of OpenAI Chat Completions, to neutral ones."""

from __future__ import annotations

import json

from addons.conversation import Message, ToolCall
from addons.dialects.chat_parts import part_text
from addons.dialects.fields import Fields, refuse, wrong_type
from addons.media import lifted

_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}


def read_messages(f: Fields) -> tuple[tuple[Message, ...], bool]:
    """The conversation, and whether its last message is the beginning of the reply.

    That is so where the last message, of the assistant, says `prefix` (DeepSeek, Mistral) or `partial` (Moonshot).
    """
    if "messages" not in f:
        f.need("messages", None)
    items = f.objects("messages")
    if not items:
        refuse("messages", "Invalid 'messages': empty array. Expected an array with minimum length 1.")
    messages: list[Message] = []
    known: set[str] = set()
    prefilled = False
    for item in items:
        if item is items[-1] and (item.flag("prefix") or item.flag("partial")):
            prefilled = True
        message = _message(item)
        known.update(call.id for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id not in known and message.name is None:
            refuse(
                item.at("tool_call_id"),
                f"Invalid parameter: '{item.at('tool_call_id')}' {message.tool_call_id!r} answers no tool call "
                "of the messages before it.",
            )
        messages.append(lifted(message))
    if prefilled and (messages[-1].role != "assistant" or messages[-1].tool_calls):
        refuse(items[-1].path, f"Invalid value for '{items[-1].path}': only an assistant's text can be continued.")
    return tuple(messages), prefilled


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
        texts.append(part_text(part, kind))
        part.close()
    return "".join(texts)


def _tool_call(call: Fields, ignored: set[str]) -> ToolCall:
    kind = call.text("type") or "function"
    if kind not in ("function", "custom"):
        refuse(
            call.at("type"),
            f"Invalid value for '{call.at('type')}': '{kind}'. Supported values are: 'function' and 'custom'.",
        )
    made = call.need(kind, call.object(kind))
    name = made.need("name", made.text("name"))
    if kind == "function":
        arguments = made.need("arguments", made.text("arguments"))
    else:  # as a function, which is what a chat template knows
        arguments = json.dumps({"input": made.need("input", made.text("input"))}, ensure_ascii=False)
    read_call = ToolCall(call.need("id", call.text("id")), name, arguments)
    call.raw("index")  # stream accumulators leave it in; it says nothing that the order does not
    made.close()
    call.close()
    return read_call
