"""Response templates of our own, for formats whose models bring none. Data for transformers'
`ResponseParser`.

One is chosen by proof: the model's own chat template writes a tool call, and the format must read it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from addons.parsers.readers import Reader, bare_json_calls, gemma_call, json_call_list, python_calls

NOWHERE = "\0"
"""The library wants an anchor; a format without one gets as prefix only what belongs to the reply."""

_THINK = {"open": "<think>", "close_pattern": r"</think>\s*"}
_TEXT: dict[str, Any] = {"content": "text"}
_RAW: dict[str, Any] = {"content": "text", "content_args": {"strip": False}}
_NAMED_JSON: dict[str, Any] = {
    "repeats": True,
    "content": "json",
    "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
}
_NAMED_TEXT: dict[str, Any] = {"repeats": True, **_RAW, "transform": {"name": "{name}", "text": "{content}"}}
_UNNAMED_TEXT: dict[str, Any] = {"repeats": True, **_RAW, "transform": {"text": "{content}"}}


@dataclass(frozen=True, slots=True)
class Format:
    """A named format; `says` tells people what it looks like."""

    name: str
    says: str
    template: dict[str, Any]
    """Its fields are those of `regions.KINDS`."""
    call_markers: tuple[str, ...] = ()
    """Literal texts that begin a tool call. Text that has one is a call gone wrong; reasoning that has one and is
    never closed was over."""
    read: Reader | None = None
    """Reads the text of a call; None where the library's own parser of content does."""
    reasoning_first: bool = True
    """It reasons at most once, before anything else; later markers are text."""
    open_ended: bool = False
    """The end of the reply ends a call as well."""
    offered_only: bool = False
    """Nothing but the name of an offered tool tells a call from JSON that is meant as text."""
    tokens: tuple[str, ...] = ()
    """Tokens that only a model of this format has: the proof where its chat template writes no calls."""
    instruction: str | None = None
    """A pattern of what a chat template tells the model about calls: the proof where it writes none."""


def _template(anchor: str | None = None, **fields: Any) -> dict[str, Any]:
    where = {"start_anchor": NOWHERE} if anchor is None else {"start_anchor_pattern": anchor}
    return {**where, "fields": {**fields, "content": _TEXT}}


def _section(opening: str, closing: str) -> dict[str, Any]:
    """Marks around all the calls of a reply, which say nothing themselves."""
    return {"open": [opening, closing], "close_pattern": "", **_TEXT}


HERMES = Format(
    name="hermes",
    says='<tool_call>{"name": ..., "arguments": {...}}</tool_call> and <think>: Hermes, Qwen 2.5, Qwen 3, SmolLM3',
    call_markers=("<tool_call>",),
    instruction=r'<tool_call>\s*\{"name": <function-name>, "arguments": <args-json-object>\}\s*</tool_call>',
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

HERMES_LIST = Format(
    name="hermes-list",
    says='<tool_call>[{"name": ..., "arguments": {...}}, ...]</tool_call>: SmolLM2',
    call_markers=("<tool_call>",),
    read=json_call_list,
    template=_template(tool_calls={"open": "<tool_call>", "close": "</tool_call>", **_UNNAMED_TEXT}),
)

QWEN_XML = Format(
    name="qwen-xml",
    says="<tool_call><function=...><parameter=...> and <think>: Qwen3-Coder, Qwen 3.5 and later, Nemotron 3",
    call_markers=("<tool_call>",),
    template=_template(
        reasoning_content=_THINK,
        tool_calls={
            "open_pattern": r"<tool_call>\s*<function=(?P<name>[^\n>]+)>",
            "close": "</tool_call>",
            **_NAMED_JSON,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>(?:(?!<parameter=).)*?)\n?</parameter>",
                "value_parser": {"name": "text", "args": {"strip": False}},
            },
        },
    ),
)

GLM = Format(
    name="glm",
    says="<tool_call>name<arg_key>...</arg_key><arg_value>...</arg_value></tool_call> and <think>: GLM 4.5 to 5",
    call_markers=("<tool_call>",),
    template=_template(
        reasoning_content=_THINK,
        tool_calls={
            "open_pattern": r"<tool_call>\s*(?P<name>[^\s<{]+)\s*(?=<arg_key>|</tool_call>)",
            "close": "</tool_call>",
            **_NAMED_JSON,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<arg_key>\s*(?P<key>[^<]+?)\s*</arg_key>\s*"
                r"<arg_value>(?P<value>(?:(?!<arg_key>|<arg_value>).)*?)</arg_value>",
                "value_parser": {"name": "text", "args": {"strip": False}},
            },
        },
    ),
)

LFM = Format(
    name="lfm2",
    says="<|tool_call_start|>[name(key=value), ...]<|tool_call_end|> and <think>: LFM2, LFM2.5",
    call_markers=("<|tool_call_start|>",),
    read=python_calls,
    tokens=("<|tool_call_start|>", "<|tool_call_end|>"),
    template=_template(
        reasoning_content=_THINK,
        tool_calls={"open": "<|tool_call_start|>", "close": "<|tool_call_end|>", **_UNNAMED_TEXT},
    ),
)

PYTHONIC = Format(
    name="pythonic",
    says="[name(key=value), ...] at the end of the reply, without any marker: templates for Llama 3.2 and 4, Gemma 3",
    read=python_calls,
    open_ended=True,
    offered_only=True,
    template=_template(tool_calls={"open_pattern": r"(?=\[\s*[\w.\-]+\s*\(\s*(?:[\w.\-]+\s*=|\)))", **_UNNAMED_TEXT}),
)

LLAMA_JSON = Format(
    name="llama3",
    says='{"name": ..., "parameters": {...}} at the end of the reply, or after <|python_tag|>: Llama 3.1 to 3.3',
    call_markers=("<|python_tag|>",),
    read=bare_json_calls,
    open_ended=True,
    offered_only=True,
    template=_template(
        tool_calls={
            "open_pattern": r"<\|python_tag\|>"
            r'|(?=\{\s*"name"\s*:\s*"[^"]*"\s*,\s*"(?:parameters|arguments)"\s*:)',
            **_UNNAMED_TEXT,
        }
    ),
)

DEEPSEEK = Format(
    name="deepseek-v3",
    says="<｜tool▁call▁begin｜>function<｜tool▁sep｜>name ```json ... ``` and <think>: DeepSeek V3, R1",
    call_markers=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    template=_template(
        reasoning_content=_THINK,
        section=_section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        tool_calls={
            "open_pattern": r"<｜tool▁call▁begin｜>\w+<｜tool▁sep｜>(?P<name>[^\n<]+)\n```json\n",
            "close_pattern": r"\n?```\s*<｜tool▁call▁end｜>",
            **_NAMED_JSON,
        },
    ),
)

DEEPSEEK_V31 = Format(
    name="deepseek-v3.1",
    says="<｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜> and <think>: DeepSeek V3.1",
    call_markers=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    template=_template(
        reasoning_content=_THINK,
        section=_section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        tool_calls={
            "open_pattern": r"<｜tool▁call▁begin｜>(?P<name>[^\n<]+)<｜tool▁sep｜>",
            "close": "<｜tool▁call▁end｜>",
            **_NAMED_JSON,
        },
    ),
)

KIMI = Format(
    name="kimi-k2",
    says="<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|> and <think>: Kimi K2",
    call_markers=("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    tokens=("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    template=_template(
        reasoning_content=_THINK,
        section=_section("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        tool_calls={
            "open_pattern": r"<\|tool_call_begin\|>\s*(?:functions\.)?+(?P<name>[^\s:<]+)(?::\d+)?\s*"
            r"<\|tool_call_argument_begin\|>",
            "close": "<|tool_call_end|>",
            **_NAMED_JSON,
        },
    ),
)

_MISTRAL_THINK = {"open": "[THINK]", "close_pattern": r"\[/THINK\]\s*"}

MISTRAL = Format(
    name="mistral",
    says="[TOOL_CALLS]name[ARGS]{...} and [THINK]: Mistral Small 3.2, Magistral, Devstral, Ministral 3",
    call_markers=("[TOOL_CALLS]",),
    open_ended=True,
    reasoning_first=False,
    tokens=("[TOOL_CALLS]", "[ARGS]"),
    template=_template(
        reasoning_content=_MISTRAL_THINK,
        tool_calls={
            "open_pattern": r"\[TOOL_CALLS\]\s*(?P<name>[^\s\[{]+)(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?(?=\s*\{)",
            "close_pattern": r"(?=\[TOOL_CALLS\])",
            **_NAMED_JSON,
        },
    ),
)

MISTRAL_LIST = Format(
    name="mistral-list",
    says='[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]: Mistral up to Small 3.1',
    call_markers=("[TOOL_CALLS]",),
    read=json_call_list,
    open_ended=True,
    template=_template(tool_calls={"open": "[TOOL_CALLS]", **_UNNAMED_TEXT}),
)

GEMMA = Format(
    name="gemma4",
    says='<|tool_call>call:name{key:<|"|>...<|"|>}<tool_call|> and <|channel>thought: Gemma 4',
    call_markers=("<|tool_call>",),
    read=gemma_call,
    reasoning_first=False,
    template=_template(
        r"<\|turn>model\n|<tool_response\|>",
        reasoning_content={"open": "<|channel>thought\n", "close_pattern": r"<channel\|>\s*"},
        tool_calls={
            "open_pattern": r"<\|tool_call>call:(?P<name>[^\s{<]+)(?=\{)",
            "close": "<tool_call|>",
            **_NAMED_TEXT,
        },
    ),
)

# Harmony writes every message with a header: who speaks, to whom, on which channel, in which form.
_STARTS = r"(?:<\|start\|>assistant)?"
_ENDS = r"<\|end\|>|<\|return\|>|(?=<\|start\|>|<\|channel\|>)"
_FORM = r"[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"

HARMONY = Format(
    name="harmony",
    says="<|channel|>commentary to=functions.name ... <|message|>{...}<|call|> and analysis: gpt-oss",
    call_markers=("<|channel|>", " to=functions."),
    reasoning_first=False,
    template=_template(
        r"<\|start\|>assistant",
        reasoning_content={"open_pattern": _STARTS + r"<\|channel\|>analysis<\|message\|>", "close_pattern": _ENDS},
        final={
            "open_pattern": _STARTS + r"<\|channel\|>(?:final|commentary)\s*(?:<\|constrain\|>[^<]*)?<\|message\|>",
            "close_pattern": _ENDS,
        },
        tool_calls={
            "open_pattern": rf"{_STARTS}\s+to=functions\.(?P<name>[^\s<]+)\s*<\|channel\|>{_FORM}"
            rf"|{_STARTS}<\|channel\|>\w+\s+to=functions\.(?P<name>[^\s<]+){_FORM}",
            "close_pattern": r"<\|call\|>|<\|end\|>",
            **_NAMED_JSON,
        },
        # A header that the end of the reply cut off says nothing; one with a recipient was going to be a call.
        header={"open_pattern": r"(?:<\|start\|>[^<=]*|<\|channel\|>[^<=]*)+\Z"},
    ),
)

THINK = Format(
    name="think",
    says="no tool calls; reasoning in <think>",
    template=_template(reasoning_content=_THINK),
)

TEXT = Format(name="text", says="no tool calls and no reasoning: everything is text", template=_template())

# The most specific first.
FORMATS = (
    *(QWEN_XML, GLM, HERMES, LFM, DEEPSEEK, DEEPSEEK_V31, KIMI, HARMONY, GEMMA, MISTRAL, MISTRAL_LIST),
    *(LLAMA_JSON, PYTHONIC, HERMES_LIST, THINK, TEXT),
)
"""All formats; those with calls are tried in this order."""
