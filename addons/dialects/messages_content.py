"""Content of Anthropic Messages, blocks to neutral messages.

One message of the provider's can hold what are several here: a user's tool results and text become tool messages
and a user message, in their order. Blocks of text are joined by a newline; an assistant's by nothing, since they
were one text when they were sampled.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from addons.conversation import Message, Role, ToolCall, continued
from addons.dialects.fields import Fields
from addons.dialects.messages_errors import invalid, refuse
from addons.dialects.messages_visible import Content, report, unnumbered
from addons.media import lifted

_BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")
"""Claude Code's accounting, sent as text and new in every request. The provider's model does not see it either."""
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def read_system(f: Fields) -> tuple[Message, ...]:
    """The system prompt, if any: one message."""
    value = f.raw("system")
    if value is None:
        return ()
    texts = list(Content(f, "system").texts(value))
    if texts and (header := _BILLING.match(texts[0])):
        f.ignored.add("system[x-anthropic-billing-header]")
        texts[0] = texts[0][header.end() :]
    text = "\n".join(text for text in texts if text)
    return (lifted(Message("system", text)),) if text else ()


def read_messages(f: Fields) -> tuple[Message, ...]:
    """The conversation. Neighbouring assistant messages are one, as they are to the provider."""
    if "messages" not in f:
        f.need("messages", None)
    items = f.objects("messages")
    if not items:
        refuse("messages", "messages: at least one message is required")
    messages: list[Message] = []
    known: set[str] = set()
    for item in items:
        named = item.need("role", item.text("role"))
        if named not in _ROLES:
            invalid(item, "role", "Input should be 'user', 'assistant' or 'system'")
        for message in _Draft(item, _ROLES[named], known).read():
            if messages and message.role == messages[-1].role == "assistant":
                message = continued(messages.pop(), message)
            messages.append(message)
    return tuple(map(lifted, messages))


@dataclass(slots=True)
class _Draft:
    """One message of the provider's being read. `known` are the ids of the calls so far."""

    item: Fields
    role: Role
    known: set[str]
    _texts: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _calls: list[ToolCall] = field(default_factory=list)
    _done: list[Message] = field(default_factory=list)

    def read(self) -> list[Message]:
        item = self.item
        content = Content(item, "content")
        value = item.raw("content")
        if value is None and not (self.role == "system" and "output_config" in item):
            item.need("content", None)
        if isinstance(value, str):
            self._texts.append(value)
        else:
            for block, raw in content.blocks([] if value is None else value):
                self._block(content, block, raw)
                block.close()
        item.close()
        if self._texts or self._reasoning or self._calls or not self._done:
            self._flush()
        return self._done

    def _block(self, content: Content, block: Fields, raw: dict[str, Any]) -> None:
        kind = block.need("type", block.text("type"))
        match kind:
            case "thinking":
                block.raw("signature")  # ours, or of the harness's earlier model: any is welcome
                thinking = block.need("thinking", block.text("thinking"))
                if self.role == "assistant":
                    self._reasoning.append(thinking)
                else:
                    report(block, kind)
            case "redacted_thinking":
                block.raw("data")
                report(block, kind)
            case "tool_use":
                arguments = block.need("input", block.mapping("input"))
                name, call_id = block.need("name", block.text("name")), block.need("id", block.text("id"))
                self._calls.append(ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False)))
                self.known.add(call_id)
            case "tool_result":
                if self._texts or self._reasoning or self._calls:
                    self._flush()
                self._done.append(self._result(block))
            case _:
                text = content.text(block, kind, raw)
                apart = self.role == "assistant" and kind != "text"
                self._texts += [f"\n{text}\n" if apart else text] if text else []

    def _result(self, block: Fields) -> Message:
        answers = block.need("tool_use_id", block.text("tool_use_id"))
        if answers not in self.known:
            block.ignored.add(unnumbered(block.at("tool_use_id")))
        value = block.raw("content")
        texts = [] if value is None else list(Content(block, "content").texts(value))
        if block.flag("is_error"):
            texts.insert(0, "[tool error]")
        return Message("tool", "\n".join(texts), tool_call_id=answers)

    def _flush(self) -> None:
        joined = ("" if self.role == "assistant" else "\n").join(self._texts)
        self._done.append(Message(self.role, joined, "".join(self._reasoning), tuple(self._calls)))
        self._texts, self._reasoning, self._calls = [], [], []
