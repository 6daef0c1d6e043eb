"""What a chat template does with a conversation, found by rendering small ones and looking what comes out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Rendered = dict[str, Any]
"""One message or tool as a template sees it."""


class TemplateError(Exception):
    """The chat template refuses the conversation; the text holds the template's own words."""


class Render(Protocol):
    """Renders messages. Raises TemplateError."""

    def __call__(
        self, messages: Sequence[Rendered], tools: Sequence[Rendered] | None = None, *, generation: bool = True
    ) -> str:
        """The template's text, with the generation prompt or without."""
        ...


@dataclass(frozen=True, slots=True)
class Habits:
    """What a template shows, accepts and wants."""

    system: bool = True
    """Shows a leading system message."""
    many_systems: bool = True
    """Shows several leading ones, in order."""
    late_system: bool = True
    """Shows one after an assistant turn, at its place."""
    two_users: bool = True
    """Shows two user messages in a row."""
    developer: bool = False
    """Names the `developer` role."""
    arguments: Literal["mapping", "json"] = "mapping"
    """The form in which it wants a call's arguments."""
    null_content: bool = False
    """Shows calls only where the assistant's content is null, not where it is empty text."""
    reasoning: str | None = None
    """The message key under which it shows reasoning, if only that of a turn with calls; None where it shows none."""
    kept_reasoning: frozenset[str] = frozenset()
    """The roles of messages after which it still shows the reasoning of the turn before: user, tool, both or none."""
    all_at_once: bool = True
    """Accepts reasoning, text and calls in one turn."""
    tools: bool = False
    """Shows tool definitions."""
    tool_calls: bool = False
    """Shows an assistant's calls."""
    tool_results: bool = False
    """Shows tool messages."""


def find_habits(render: Render, source: str) -> Habits:
    """Try out a template whose Jinja source is `source`."""
    probe = _Probe(render)
    first, second = _said("system", "probe-s1"), _said("system", "probe-s2")
    user, other = _said("user", "probe-u1"), _said("user", "probe-u2")
    talk = [user, _said("assistant", "probe-a1")]
    system = probe.shows([first, user], "probe-s1", "probe-u1")
    null_content = not probe.shows_calls("") and probe.shows_calls(None)
    empty = None if null_content else ""
    reasoning = probe.reasoning_key(empty)
    return Habits(
        system=system,
        many_systems=system and probe.shows([first, second, user], "probe-s1", "probe-s2", "probe-u1"),
        late_system=probe.shows([*talk, second, other], "probe-a1", "probe-s2", "probe-u2")
        and probe.shows([*talk, second], "probe-a1", "probe-s2"),
        two_users=probe.shows([user, other], "probe-u1", "probe-u2"),
        developer="developer" in source,
        arguments="json" if probe.wants_json_arguments(empty) else "mapping",
        null_content=null_content,
        reasoning=reasoning,
        kept_reasoning=frozenset(role for role in ("user", "tool") if probe.keeps_reasoning(reasoning, role, empty)),
        all_at_once=reasoning is None or probe.accepts_all_at_once(reasoning),
        tools=probe.shows([user], "probe_tool", tools=[_TOOL]),
        tool_calls=probe.shows_calls(empty),
        tool_results=any(probe.shows([*_calling(form, empty), _RESULT], "probe-r1") for form in _FORMS),
    )


def rendered_call(call_id: str, name: str, arguments: Any) -> Rendered:
    """A tool call as templates see it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


class _Probe:
    def __init__(self, render: Render) -> None:
        self._render = render

    def shows(self, messages: Sequence[Rendered], *marks: str, tools: Sequence[Rendered] | None = None) -> bool:
        """Whether the rendering has each mark exactly once, in this order."""
        for generation in (True, False):
            try:
                text = self._render(messages, tools, generation=generation)
            except TemplateError:
                return False
            places = [text.find(mark) for mark in marks]
            if all(text.count(mark) == 1 for mark in marks) and places == sorted(places):
                return True
        return False

    def shows_calls(self, content: str | None) -> bool:
        return any(self.shows(_calling(form, content), "probe_tool", _ARGUMENT) for form in _FORMS)

    def wants_json_arguments(self, content: str | None) -> bool:
        mapping, text = (_calling(form, content) for form in _FORMS)
        if not self.shows(mapping, _ARGUMENT):
            return self.shows(text, _ARGUMENT)
        # A mapping printed as it is, in Python's spelling, is no JSON.
        return "{'a'" in self._render(mapping, generation=False) and self.shows(text, _ARGUMENT)

    def reasoning_key(self, content: str | None) -> str | None:
        """Of a turn of text or, as Gemma 4's does it, only of one with calls."""
        turns = [[_said("user", "probe-u1"), _said("assistant", "probe-a1")], *(_calling(f, content) for f in _FORMS)]
        for talk in turns:
            for key in ("reasoning_content", "reasoning", "thinking"):
                if self.shows([*talk[:-1], talk[-1] | {key: "probe-t1"}], "probe-t1"):
                    return key
        return None

    def accepts_all_at_once(self, key: str) -> bool:
        for form in _FORMS:
            user, calling = _calling(form, "probe-a1")
            try:
                self._render([user, calling | {key: "probe-t1"}])
            except TemplateError:
                continue
            return True
        return False

    def keeps_reasoning(self, key: str | None, role: str, content: str | None) -> bool:
        """Whether reasoning is still shown once a message of `role` came after its turn."""
        if key is None:
            return False
        turns = [_calling(form, content) for form in _FORMS]
        if role == "user":
            turns = [[_said("user", "probe-u1"), _said("assistant", "probe-a1")]]
        after = _RESULT if role == "tool" else _said("user", "probe-u2")
        return any(self.shows([*talk[:-1], talk[-1] | {key: "probe-t1"}, after], "probe-t1") for talk in turns)


_ARGUMENT = "probe_argument"
_FORMS: tuple[Any, Any] = ({"a": _ARGUMENT}, json.dumps({"a": _ARGUMENT}))
_TOOL: Rendered = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "d",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}
# Nine letters and digits: the only form of id that some templates (Mistral's) accept.
_RESULT: Rendered = {"role": "tool", "content": "probe-r1", "name": "probe_tool", "tool_call_id": "call00001"}


def _said(role: str, text: str) -> Rendered:
    return {"role": role, "content": text}


def _calling(arguments: Any, content: str | None) -> list[Rendered]:
    call = rendered_call("call00001", "probe_tool", arguments)
    return [_said("user", "probe-u1"), {"role": "assistant", "content": content, "tool_calls": [call]}]
