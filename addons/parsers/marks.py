"""Delimiters that are special tokens, told from the same characters spelt with ordinary ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from addons.parsers.formats import Format

_FIRST_SURROGATE = 0xD800


class Marks:
    """One character for each special token that is a delimiter of a format: a lone surrogate, as no text has one."""

    def __init__(self, form: Format, special: Mapping[int, str]) -> None:
        patterns = [*_texts(form.template), *form.call_markers]
        used = {
            number: text
            for number, text in special.items()
            if any(text in pattern or escaped(text) in pattern for pattern in patterns)
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
            value = value.replace(escaped(delimiter), mark).replace(delimiter, mark)
        return value.replace("[^", "[^" + "".join(self._of_text.values()))


def _texts(value: Any) -> list[str]:
    """Every text in a JSON-like value."""
    if isinstance(value, dict | list):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def escaped(text: str) -> str:
    """As people escape a literal in a regular expression: only what has a meaning there."""
    return "".join("\\" + character if character in r"\.^$*+?{}[]|()" else character for character in text)
