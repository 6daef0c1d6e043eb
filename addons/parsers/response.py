"""Response templates, compiled: what transformers' `ResponseParser` is driven by."""

from __future__ import annotations

from collections.abc import Mapping

from transformers.utils.chat_parsing.response_templates import ResponseTemplate, load_response_template

from addons.parsers.formats import NOWHERE, Format
from addons.parsers.marks import Marks, escaped

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

    @property
    def anchored(self) -> bool:
        """Whether the template says where in the prompt an assistant's message begins."""
        return self.form.template.get("start_anchor") != NOWHERE

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
        return any(stop in pattern or escaped(stop) in pattern for pattern in self._stop_patterns)
