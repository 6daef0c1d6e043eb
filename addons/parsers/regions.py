"""Replies read by transformers' streaming `ResponseParser`, driven by a response template (a dict).

The library cuts the text into regions (reasoning, tool calls, content), holds back what may be the beginning
of a delimiter, and parses what is in a region when it closes. This adapter turns its events into ours, and
adds what a gateway needs: a tool call that does not parse comes out as the text that it was, not as an
exception, and one that was never closed is no call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import regex
from transformers.utils.chat_parsing.response_parser import ResponseParser

from addons.parsers.events import Called, Event, Reasoning, Text, called
from addons.parsers.response import KINDS, ResponseFormat


class RegionParser:
    """A `Parser` over one reply. `prefix` is what the prompt has already written of the assistant's message.

    A tool call inside reasoning is a draft, and reasoning as well. But some models forget to close their
    reasoning before they call: so a draft waits, and if the reasoning never ends, it is read as what follows
    the reasoning.
    """

    def __init__(self, form: ResponseFormat, prefix: str, tools: Sequence[dict[str, Any]]) -> None:
        self._form = form
        self._tools = tools
        self._offered = frozenset(tool["function"]["name"] for tool in tools)
        self._markers = form.call_markers if tools else ()
        self._regions = _Regions(form, prefix, tools)
        self._draft = ""

    def feed(self, number: int, text: str) -> list[Event]:
        """See `Parser`."""
        return self._read(self._form.marks.read(number, text))

    def finish(self, stop: str) -> list[Event]:
        """See `Parser`."""
        events = self._read(self._form.marks.mark(stop)) if stop and self._form.wants(stop) else []
        events += self._events(self._regions.end())
        if not self._draft:
            return events
        after = RegionParser(self._form, "", self._tools)
        read = after._read(self._draft) + after.finish("")
        return events + (read if any(isinstance(event, Called) for event in read) else [self._reasoning(self._draft)])

    def reasoning(self) -> bool:
        """See `Parser`."""
        return self._regions.kind() == "reasoning"

    def _read(self, text: str) -> list[Event]:
        return self._events(self._regions.feed(text)) if text else []

    def _events(self, raw: list[dict[str, Any]]) -> list[Event]:
        events: list[Event] = []
        for event in raw:
            kind, what = KINDS[event["field"]], event["type"]
            if what == "region_chunk" and kind == "text":
                broken = event["field"] == "content" and any(marker in event["text"] for marker in self._markers)
                events.append(Text(self._form.marks.restore(event["text"]), malformed=broken))
            elif what == "region_chunk" and kind == "reasoning":
                events += self._reason(event["text"])
            elif what == "region_close" and kind == "reasoning" and event["closed"]:
                events.append(self._reasoning(self._draft))
                self._draft = ""
            elif what == "region_close" and kind == "calls":
                events += self._call(event["value"], event["raw"])
        return events

    def _reason(self, text: str) -> list[Event]:
        said, draft = text, ""
        if self._draft:
            said, draft = "", text
        elif places := [place for marker in self._markers if (place := text.find(marker)) >= 0]:
            said, draft = text[: min(places)], text[min(places) :]
        self._draft += draft
        return [self._reasoning(said)]

    def _reasoning(self, text: str) -> Reasoning:
        return Reasoning(self._form.marks.restore(text))

    def _call(self, value: Any, raw: str) -> Sequence[Event]:
        """The calls of one region; its text when any of them is malformed."""
        form = self._form.form
        if form.read is None:
            calls = _library_calls(value)
        else:
            calls = form.read(value.get("name", ""), value["text"]) if value else None
        marked = not form.offered_only or raw.startswith(form.call_markers)
        if calls and (marked or all(call.name in self._offered for call in calls)):
            return calls
        return [Text(raw, malformed=marked or bool(calls) or any(name in raw for name in self._offered))]


class _Regions(ResponseParser):  # type: ignore[misc]  # transformers has no types
    """The library's parser, which also keeps a region's raw text and survives one that does not parse.

    Private methods are extended; the version of transformers is pinned, and
    tests/addons/parsers/test_formats.py holds what is relied on.
    """

    def __init__(self, form: ResponseFormat, prefix: str, tools: Sequence[dict[str, Any]]) -> None:
        self._reasoning_first = form.form.reasoning_first
        self._open_ended = form.form.open_ended
        self._marks = form.marks
        self._said = False
        self._ending = False
        self._start = self._inside = 0
        template = form.template(tools=bool(tools))
        super().__init__(template, prefix=prefix, tools=list(tools) if form.typed else None)

    def kind(self) -> str:
        """The kind of the region that is open."""
        return KINDS.get(self._current or "", "")

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
        return [(kind, field) for kind, field in watch if KINDS[field.name] != "reasoning"]

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
        if KINDS[field] == "calls":
            closed = closed or self._open_ended
        if KINDS[field] != "calls":
            before = len(events)
            super()._close_current(events)
            for event in events[before:]:
                event["closed"] = closed
            return
        raw = self._marks.restore(self._buffer[self._start : self._pos])
        self._body: str = self._marks.restore(self._body)
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


def _library_calls(value: Any) -> list[Called] | None:
    """Calls as the library's parsers of content give them."""
    calls: list[Called] = []
    for item in value if isinstance(value, list) else [value]:
        call = called(item.get("function")) if isinstance(item, dict) else None
        if call is None:
            return None
        calls.append(call)
    return calls
