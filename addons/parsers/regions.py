"""Replies read by transformers' streaming `ResponseParser`, driven by a response template (a dict).

The library cuts the text into regions (reasoning, tool calls, content), holds back what may be the beginning
of a delimiter, and parses what is in a region when it closes. This adapter turns its events into ours, and
adds what a gateway needs: a tool call that does not parse comes out as the text that it was, not as an
exception, and one that was never closed is no call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import regex
from transformers.utils.chat_parsing.response_parser import ResponseParser
from transformers.utils.chat_parsing.response_templates import ResponseTemplate, load_response_template

from addons.parsers.events import Called, Event, Reasoning, Text, called

_KINDS = {
    "content": "text",
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
    "thinking": "reasoning",
    "tool_calls": "calls",
}


class ResponseFormat:
    """A response template, compiled. Raises ValueError, naming what is wrong with it."""

    def __init__(self, source: Mapping[str, Any], call_marker: str = "", *, reasoning_first: bool = False) -> None:
        """`call_marker` begins every tool call (see `Format`); by default it is the literal that opens one, if any.

        `reasoning_first`: the format reasons at most once, before anything else; later markers are text.
        """
        unknown = sorted(set(source.get("fields", {})) - set(_KINDS))
        if unknown:
            raise ValueError(f"a response template with fields {unknown}; known are {sorted(_KINDS)}")
        self._whole = load_response_template(dict(source))
        fields = {name: field for name, field in source["fields"].items() if _KINDS[name] != "calls"}
        self._without_calls = load_response_template({**source, "fields": fields}) if fields else self._whole
        openers = [
            literal
            for name, field in self._whole.fields.items()
            if _KINDS[name] == "calls"
            for literal in field.open_literals or ()
        ]
        self.call_marker = call_marker or next(iter(openers), "")
        self.reasoning_first = reasoning_first
        self._stop_patterns = [
            field.close_re.pattern for field in self._whole.fields.values() if field.close_re is not None
        ]

    def template(self, *, tools: bool) -> ResponseTemplate:
        """The compiled template; without its tool calls when the harness offered no tools."""
        return self._whole if tools else self._without_calls

    def anchor_in(self, text: str) -> bool:
        """Whether the text has the marker after which an assistant's message begins."""
        return self._whole.start_anchor_re.search(text) is not None

    def reasoning_is_over(self, text: str) -> bool:
        """Whether text that begins with a marker of reasoning also has its end."""
        return any(
            _KINDS[name] == "reasoning" and field.close_re is not None and field.close_re.search(text)
            for name, field in self._whole.fields.items()
        )

    @property
    def reasoning_markers(self) -> tuple[str, ...]:
        """Literal texts that open reasoning."""
        return tuple(
            literal
            for name, field in self._whole.fields.items()
            if _KINDS[name] == "reasoning"
            for literal in field.open_literals or ()
        )

    @property
    def typed(self) -> bool:
        """Whether arguments need the tools' schemas to be typed: formats that write them as bare text."""
        return any(_KINDS[name] == "calls" and field.content != "json" for name, field in self._whole.fields.items())

    def wants(self, stop: str) -> bool:
        """Whether the stop token's text is one of the template's delimiters."""
        return any(stop in pattern or _escaped(stop) in pattern for pattern in self._stop_patterns)


class RegionParser:
    """A `Parser` over one reply. `prefix` is what the prompt has already written of the assistant's message.

    A tool call inside reasoning is a draft, and reasoning as well. But some models forget to close their
    reasoning before they call: so a draft waits, and if the reasoning never ends, it is read as what follows
    the reasoning.
    """

    def __init__(self, form: ResponseFormat, prefix: str, tools: Sequence[dict[str, Any]]) -> None:
        self._form = form
        self._tools = tools
        self._marker = form.call_marker if tools else ""
        self._regions = _Regions(form, prefix, tools)
        self._draft = ""

    def feed(self, number: int, text: str) -> list[Event]:
        """See `Parser`; the id itself does not matter here."""
        return self._events(self._regions.feed(text)) if text else []

    def finish(self, stop: str) -> list[Event]:
        """See `Parser`."""
        events = self._events(self._regions.feed(stop)) if stop and self._form.wants(stop) else []
        events += self._events(self._regions.end())
        if not self._draft:
            return events
        after = RegionParser(self._form, "", self._tools)
        read = after.feed(0, self._draft) + after.finish("")
        return events + (read if any(isinstance(event, Called) for event in read) else [Reasoning(self._draft)])

    def reasoning(self) -> bool:
        """See `Parser`."""
        return self._regions.kind() == "reasoning"

    def _events(self, raw: list[dict[str, Any]]) -> list[Event]:
        events: list[Event] = []
        for event in raw:
            kind, what = _KINDS[event["field"]], event["type"]
            if what == "region_chunk" and kind == "text":
                broken = bool(self._marker) and self._marker in event["text"]
                events.append(Text(event["text"], malformed=broken))
            elif what == "region_chunk" and kind == "reasoning":
                events += self._reason(event["text"])
            elif what == "region_close" and kind == "reasoning" and event["closed"]:
                events.append(Reasoning(self._draft))
                self._draft = ""
            elif what == "region_close" and kind == "calls":
                calls = _calls(event["value"])
                events.extend(calls or [Text(event["raw"], malformed=True)])
        return events

    def _reason(self, text: str) -> list[Event]:
        if self._draft or not self._marker:
            said, draft = ("", text) if self._draft else (text, "")
        else:
            said, marker, rest = text.partition(self._marker)
            draft = marker + rest
        self._draft += draft
        return [Reasoning(said)]


class _Regions(ResponseParser):  # type: ignore[misc]  # transformers has no types
    """The library's parser, which also keeps a region's raw text and survives one that does not parse.

    Private methods are extended; the version of transformers is pinned, and
    tests/addons/test_replies_regions.py holds what is relied on.
    """

    def __init__(self, form: ResponseFormat, prefix: str, tools: Sequence[dict[str, Any]]) -> None:
        self._reasoning_first = form.reasoning_first
        self._said = False
        self._ending = False
        self._start = self._inside = 0
        template = form.template(tools=bool(tools))
        super().__init__(template, prefix=prefix, tools=list(tools) if form.typed else None)

    def kind(self) -> str:
        """The kind of the region that is open."""
        return _KINDS.get(self._current or "", "")

    def end(self) -> list[dict[str, Any]]:
        """The last events; what is still open is closed or given up."""
        events: list[dict[str, Any]] = []
        self._ending = True
        self._process(events, eos=True)
        return events

    def _watchlist(self) -> list[Any]:
        watch: list[Any] = super()._watchlist()
        if not self._reasoning_first or not self._said or self._current != self._implicit_name:
            return watch
        return [(kind, field) for kind, field in watch if _KINDS[field.name] != "reasoning"]

    def _accumulate(self, events: list[dict[str, Any]], text: str) -> None:
        self._said = self._said or bool(text.strip())
        super()._accumulate(events, text)

    def _open_explicit(self, events: list[dict[str, Any]], field: Any, m: Any) -> None:
        self._said = True
        self._start, self._inside = m.start(), m.end()
        super()._open_explicit(events, field, m)

    def _close_current(self, events: list[dict[str, Any]]) -> None:
        field = self._current
        if field is None or field == self._implicit_name:
            super()._close_current(events)
            return
        close = self._spec.fields[field].close_re
        closed = not self._ending or close is None or close.search(self._buffer, self._inside) is not None
        if _KINDS[field] != "calls":
            before = len(events)
            super()._close_current(events)
            for event in events[before:]:
                event["closed"] = closed
            return
        raw = self._buffer[self._start : self._pos]
        closed = closed and not self._left_over(self._spec.fields[field])
        parsed: list[dict[str, Any]] = []
        try:
            super()._close_current(parsed)
        except (KeyError, RecursionError, TypeError, ValueError):
            self._reset_to_implicit()
            closed = False
        value = parsed[-1]["value"] if closed and parsed else None
        events.append({"type": "region_close", "field": field, "value": value, "raw": raw})

    def _left_over(self, field: Any) -> bool:
        """Whether a call written in tags has text that belongs to no argument: a broken tag is not an absent
        one.
        """
        pattern = field.content_args.get("tag_pattern")
        if pattern is None:
            return False
        rest = regex.sub(pattern, "", self._body, flags=regex.DOTALL)
        return bool(regex.sub(r"</\w+>", "", rest).strip())


def _calls(value: Any) -> list[Event]:
    """The calls of one region; none at all when any of them is malformed."""
    calls: list[Event] = []
    for item in value if isinstance(value, list) else [value]:
        call: Called | None = called(item.get("function")) if isinstance(item, dict) else None
        if call is None:
            return []
        calls.append(call)
    return calls


def _escaped(text: str) -> str:
    """As people escape a literal in a regular expression: only what has a meaning there."""
    return "".join("\\" + character if character in r"\.^$*+?{}[]|()" else character for character in text)
