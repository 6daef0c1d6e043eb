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
from addons.parsers.formats import Format

KINDS = {
    "content": "text",
    "final": "text",
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
    "thinking": "reasoning",
    "tool_calls": "calls",
    "section": "marks",
    "header": "header",
}
"""What the fields of a response template are. Marks belong to the calls, and like a header they say nothing."""
_FIRST_SURROGATE = 0xD800
_STANDARD = ("content", "reasoning", "reasoning_content", "thinking", "tool_calls")


class ResponseFormat:
    """A format, its response template compiled."""

    def __init__(self, form: Format, special: Mapping[int, str] | None = None) -> None:
        """`special` are the vocabulary's special tokens. A delimiter that is one is that token only: the same
        characters spelt with other tokens are text.

        Raises ValueError, naming what is wrong with the template.
        """
        source = form.template
        unknown = sorted(set(source.get("fields", {})) - set(KINDS))
        if unknown:
            raise ValueError(f"a response template with fields {unknown}; known are {sorted(_STANDARD)}")
        self.form = form
        self.marks = Marks(form, special or {})
        source = self.marks.template(source)
        self._whole = load_response_template(dict(source))
        fields = {name: field for name, field in source["fields"].items() if KINDS[name] not in ("calls", "marks")}
        self._without_calls = load_response_template({**source, "fields": fields}) if fields else self._whole
        openers = [
            literal
            for name, field in self._whole.fields.items()
            if KINDS[name] == "calls"
            for literal in field.open_literals or ()
        ]
        self.call_markers = tuple(map(self.marks.mark, form.call_markers)) or tuple(openers)
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
            KINDS[name] == "reasoning" and field.close_re is not None and field.close_re.search(text)
            for name, field in self._whole.fields.items()
        )

    @property
    def reasoning_markers(self) -> tuple[str, ...]:
        """Literal texts that open reasoning."""
        return tuple(
            self.marks.restore(literal)
            for name, field in self._whole.fields.items()
            if KINDS[name] == "reasoning"
            for literal in field.open_literals or ()
        )

    @property
    def typed(self) -> bool:
        """Whether arguments need the tools' schemas to be typed: formats that write them as bare text."""
        return any(
            field.content == "xml-inline" for name, field in self._whole.fields.items() if KINDS[name] == "calls"
        )

    def wants(self, stop: str) -> bool:
        """Whether the stop token's text is one of the template's delimiters."""
        stop = self.marks.mark(stop)
        return any(stop in pattern or _escaped(stop) in pattern for pattern in self._stop_patterns)


class Marks:
    """One character for each special token that is a delimiter of a format: a lone surrogate, as no text has one."""

    def __init__(self, form: Format, special: Mapping[int, str]) -> None:
        patterns = [*_texts(form.template), *form.call_markers]
        used = {
            number: text
            for number, text in special.items()
            if any(text in pattern or _escaped(text) in pattern for pattern in patterns)
        }
        self._of_id = {number: (text, chr(_FIRST_SURROGATE + n)) for n, (number, text) in enumerate(used.items())}
        self._of_text = dict(self._of_id.values())
        self._text_of = {ord(mark): text for text, mark in self._of_text.items()}

    def mark(self, text: str) -> str:
        """A text, its delimiters as marks."""
        for delimiter, mark in self._of_text.items():
            text = text.replace(delimiter, mark)
        return text

    def read(self, number: int, text: str) -> str:
        """The text that a token completes, or its mark."""
        if number not in self._of_id:
            return text
        delimiter, mark = self._of_id[number]
        return text.removesuffix(delimiter) + mark

    def restore(self, text: str) -> str:
        """A text without marks."""
        return text.translate(self._text_of) if self._text_of else text

    def template(self, value: Any) -> Any:
        """A response template, its delimiters as marks; what a pattern excludes, excludes them as well."""
        if isinstance(value, dict):
            return {key: self.template(item) if key != "content_args" else item for key, item in value.items()}
        if isinstance(value, list):
            return [self.template(item) for item in value]
        if not isinstance(value, str):
            return value
        for delimiter, mark in self._of_text.items():
            value = value.replace(_escaped(delimiter), mark).replace(delimiter, mark)
        return value.replace("[^", "[^" + "".join(self._of_text.values()))


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
                events.extend(self._calls(event["value"]) or [Text(event["raw"], malformed=True)])
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

    def _calls(self, value: Any) -> Sequence[Called]:
        """The calls of one region; none at all when any of them is malformed."""
        form = self._form.form
        if form.read is not None:
            calls = form.read(value.get("name", ""), value["text"]) if value else None
        else:
            calls = _library_calls(value)
        if calls and form.offered_only and any(call.name not in self._offered for call in calls):
            return ()
        return calls or ()


class _Regions(ResponseParser):  # type: ignore[misc]  # transformers has no types
    """The library's parser, which also keeps a region's raw text and survives one that does not parse.

    Private methods are extended; the version of transformers is pinned, and
    tests/addons/test_replies_regions.py holds what is relied on.
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


def _texts(value: Any) -> list[str]:
    """Every text in a JSON-like value."""
    if isinstance(value, dict | list):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _escaped(text: str) -> str:
    """As people escape a literal in a regular expression: only what has a meaning there."""
    return "".join("\\" + character if character in r"\.^$*+?{}[]|()" else character for character in text)
