"""How a model writes a tool call, found by letting its own chat template write one."""

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
    arguments: Literal["json", "xml"]
    separator: str | None
    """Text between two calls; None where the template writes only one."""

    def opening(self, name: str) -> str:
        """Everything up to the arguments of a call of `name`."""
        return self.before_name + name + self.after_name


def find_markup(template: ChatTemplate, stops: Sequence[str]) -> CallMarkup | None:
    """The markup of a template; None where it writes no call, or in a form unknown here.

    `stops` are the texts of the model's stop ids: the first of them ends the turn.
    """
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
