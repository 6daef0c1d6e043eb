"""How a model writes a tool call: known for a format with a name, else found by letting the chat template write one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from addons.conversation import Message, ToolCall
from addons.habits import TemplateError
from addons.render import ChatTemplate

_NAME, _VALUE = "probe_tool", "probe_value"
_JSON = re.compile(rf'\{{\s*"a"\s*:\s*"{_VALUE}"\s*\}}')
_XML = re.compile(rf"<parameter=a>\s*{_VALUE}\s*</parameter>")


@dataclass(frozen=True, slots=True)
class CallMarkup:
    """The text around a call's arguments; `opening` and `closing` hold the tool's name where it stands."""

    before_name: str
    after_name: str
    closing: str
    arguments: Literal["json", "xml", "glm", "python"] = "json"
    separator: str | None = None
    """Text between two calls; None where only one is written."""
    section: tuple[str, str] = ("", "")
    """Text around all the calls."""
    before_answer: str = ""
    """What a reply of text begins with."""

    def opening(self, name: str) -> str:
        """Everything up to the arguments of a call of `name`."""
        return self.before_name + name + self.after_name


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_KNOWN = {  # by the names of addons.parsers.formats
    "hermes": CallMarkup('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", separator="\n"),
    "hermes-list": CallMarkup(
        '{"name": "', '", "arguments": ', "}", separator=", ", section=("<tool_call>[", "]</tool_call>")
    ),
    "qwen-xml": CallMarkup("<tool_call>\n<function=", ">\n", "\n</function>\n</tool_call>", "xml", "\n"),
    "glm": CallMarkup("<tool_call>", "", "</tool_call>", "glm", ""),
    "lfm2": CallMarkup(
        "", "(", ")", "python", separator=", ", section=("<|tool_call_start|>[", "]<|tool_call_end|>")
    ),
    "pythonic": CallMarkup("", "(", ")", "python", separator=", ", section=("[", "]")),
    "llama3": CallMarkup('{"name": "', '", "parameters": ', "}"),
    "deepseek-v3": CallMarkup(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>", separator="\n",
        section=_DEEPSEEK,
    ),
    "deepseek-v3.1": CallMarkup(
        "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", separator="", section=_DEEPSEEK
    ),
    "kimi-k2": CallMarkup(
        "<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>", separator="",
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    "harmony": CallMarkup(
        "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>",
        before_answer="<|channel|>final<|message|>",
    ),
    "gemma4": CallMarkup("<|tool_call>call:", "", "<tool_call|>", separator=""),
    "mistral": CallMarkup("[TOOL_CALLS]", "[ARGS]", "", separator=""),
    "mistral-list": CallMarkup(
        '{"name": "', '", "arguments": ', "}", separator=", ", section=("[TOOL_CALLS] [", "]")
    ),
}  # fmt: skip


def find_markup(template: ChatTemplate, stops: Sequence[str], parser: str = "") -> CallMarkup | None:
    """The markup that a parser of this name reads, or that the template writes.

    None where the parser is none of ours and the template writes no call, or in a form unknown here. `stops` are
    the texts of the model's stop ids: the first of them ends the turn.
    """
    if parser in _KNOWN:
        return _KNOWN[parser]
    one, two = _written(template, 1), _written(template, 2)
    if one is None:
        return None
    for form, pattern in (("json", _JSON), ("xml", _XML)):
        if (found := pattern.search(one)) is None or one.count(_NAME, 0, found.start()) != 1:
            continue
        before, after = one[: found.start()].split(_NAME)
        rest = one[found.end() :]
        cut = min((at for stop in stops if (at := rest.find(stop)) >= 0), default=len(rest))
        closing = rest[:cut].rstrip() if cut == len(rest) else rest[:cut]
        separator = None
        if two is not None and len(spots := list(pattern.finditer(two))) == 2:
            between = two[spots[0].end() : spots[1].start()]
            start = before.lstrip() + _NAME + after
            if between.startswith(closing) and between.endswith(start):
                separator = between[len(closing) : len(between) - len(start)]
        return CallMarkup(before, after, closing, "json" if form == "json" else "xml", separator)
    return None


def _written(template: ChatTemplate, calls: int) -> str | None:
    """What the template writes for an assistant turn of nothing but calls, after the generation prompt."""
    user = Message("user", "U")
    made = tuple(ToolCall(f"call_{i:09}", _NAME, f'{{"a": "{_VALUE}"}}') for i in range(calls))
    try:
        prompt = template.render(template.messages([user]))
        whole = template.render(template.messages([user, Message("assistant", tool_calls=made)]), generation=False)
    except TemplateError:
        return None
    return whole.removeprefix(prompt) if whole.startswith(prompt) else None
