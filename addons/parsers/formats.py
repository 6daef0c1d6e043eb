"""Response templates of our own, for formats whose models bring none. Data for transformers'
`ResponseParser`.

One is chosen by proof: the model's own chat template writes a tool call, and the format must read it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_NOWHERE = "\0"  # the library wants an anchor; ours get as prefix only what belongs to the reply

_THINK = {"open": "<think>", "close_pattern": r"</think>\s*"}
_CONTENT: dict[str, Any] = {"content": "text"}


@dataclass(frozen=True, slots=True)
class Format:
    """A named format; `says` tells people what it looks like."""

    name: str
    says: str
    template: dict[str, Any]
    call_marker: str = ""
    """Begins every tool call. Text that has it is a call gone wrong; reasoning that has it and is never
    closed was over."""


def _template(**fields: Any) -> dict[str, Any]:
    return {"start_anchor": _NOWHERE, "fields": {**fields, "content": _CONTENT}}


HERMES = Format(
    name="hermes",
    says='<tool_call>{"name": ..., "arguments": {...}}</tool_call> and <think>: Hermes, Qwen 2.5, Qwen 3',
    call_marker="<tool_call>",
    template=_template(
        reasoning_content=_THINK,
        tool_calls={
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
    ),
)

QWEN_XML = Format(
    name="qwen-xml",
    says="<tool_call><function=...><parameter=...> and <think>: Qwen3-Coder, Qwen 3.5 and later, Nemotron 3",
    call_marker="<tool_call>",
    template=_template(
        reasoning_content=_THINK,
        tool_calls={
            "open_pattern": r"<tool_call>\s*<function=(?P<name>[^\n>]+)>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>",
                "value_parser": {"name": "text", "args": {"strip": False}},
            },
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    ),
)

THINK = Format(
    name="think",
    says="no tool calls; reasoning in <think>",
    template=_template(reasoning_content=_THINK),
)

TEXT = Format(name="text", says="no tool calls and no reasoning: everything is text", template=_template())

# The most specific first.
FORMATS = (QWEN_XML, HERMES, THINK, TEXT)
