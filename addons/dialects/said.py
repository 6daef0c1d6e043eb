"""A finished reply as the parts it was sampled in: reasoning, text and calls may alternate."""

from __future__ import annotations

from addons.conversation import Delta, ReasoningDelta, Reply, TextDelta, ToolCall, ToolCallDelta

Part = ReasoningDelta | TextDelta | ToolCall


def parts(reply: Reply) -> list[Part]:
    """The parts in order, each whole; those of a reply without its deltas in the order reasoning, text, calls."""
    message = reply.message
    if not reply.said:
        texts: list[Part] = []
        if message.reasoning:
            texts.append(ReasoningDelta(message.reasoning))
        if message.content:
            texts.append(TextDelta(message.content))
        return [*texts, *message.tool_calls]
    out: list[Part] = []
    for delta in reply.said:
        _add(out, delta)
    return out


def _add(out: list[Part], delta: Delta) -> None:
    last = out[-1] if out else None
    match delta:
        case ToolCallDelta(_, arguments, id_, name) if name is not None and id_ is not None:
            out.append(ToolCall(id_, name, arguments))
        case ToolCallDelta(_, arguments):
            assert isinstance(last, ToolCall), "arguments before their call"
            out[-1] = ToolCall(last.id, last.name, last.arguments + arguments)
        case TextDelta(text) if text:
            out[-1:] = [TextDelta(last.text + text)] if isinstance(last, TextDelta) else [*out[-1:], delta]
        case ReasoningDelta(text) if text:
            out[-1:] = [ReasoningDelta(last.text + text)] if isinstance(last, ReasoningDelta) else [*out[-1:], delta]
