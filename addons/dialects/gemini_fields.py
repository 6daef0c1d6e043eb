"""Reading a Gemini request: protocol buffers as JSON, with Google's own error messages.

Every key has two spellings, `maxOutputTokens` and `max_output_tokens`; a repeated field may be given as its single
item; numbers may be strings. Errors name a field as Google does, by its protocol buffer path
(`generation_config.max_output_tokens`); `ignored_fields` has the JSON names.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from addons.dialects.fields import Fields
from addons.errors import BadRequest

_TYPES = {str: "TYPE_STRING", bool: "TYPE_BOOL", dict: "TYPE_MESSAGE", list: "TYPE_MESSAGE"}
_SHOWN = 200
"""Characters of an offending value that an error message repeats."""


class GoogleFields(Fields):
    """One message of a request, its keys taken by their JSON names."""

    def __init__(self, value: Any, path: str = "", ignored: set[str] | None = None) -> None:
        if not isinstance(value, dict):
            invalid(path or "body", "TYPE_MESSAGE", value)
        self._spelled: dict[str, str] = {}
        named: dict[str, Any] = {}
        for key, item in value.items():
            name = json_name(key)
            if item is None:
                continue
            if name in named:
                violation(f"{path}.{name}" if path else name, f"{self._spelled[name]} and {key} are one field")
            named[name] = item
            self._spelled[name] = key
        super().__init__(named, path, ignored)

    def integer(self, key: str, low: int | None = None, high: int | None = None) -> int | None:
        """Take an integer within [low, high]; 3.0 and "3" count as 3."""
        value = self._numeric(key, low, high, "TYPE_INT32")
        return None if value is None else int(value)

    def number(self, key: str, low: float | None = None, high: float | None = None) -> float | None:
        """Take a number within [low, high]; "0.5" counts as 0.5."""
        return self._numeric(key, low, high, "TYPE_FLOAT")

    def object(self, key: str) -> GoogleFields | None:
        """Take a message, to be read in turn (and closed)."""
        value = self._typed(key, dict)
        return None if value is None else GoogleFields(value, self.at(key), self.ignored)

    def messages(self, key: str) -> list[GoogleFields]:
        """Take a repeated message; one alone stands for a list of one, an absent one is empty."""
        value = self.raw(key)
        items = [value] if isinstance(value, dict) else [] if value is None else value
        if not isinstance(items, list):
            invalid(self.at(key), "TYPE_MESSAGE", value)
        return [GoogleFields(item, f"{self.at(key)}[{i}]", self.ignored) for i, item in enumerate(items)]

    def strings(self, key: str) -> tuple[str, ...]:
        """Take a repeated string."""
        value = self.raw(key)
        items = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(items, list) or not all(isinstance(s, str) for s in items):
            invalid(self.at(key), "TYPE_STRING", value)
        return tuple(items)

    def enum(self, key: str, names: tuple[str, ...]) -> str | None:
        """Take one of `names`, in whatever case; the first stands for "unspecified" and counts as absent."""
        given = self.text(key)
        if given is None:
            return None
        if given.upper() not in names:
            invalid(self.at(key), "TYPE_ENUM", given)
        return None if given.upper() == names[0] else given.upper()

    def need(self, key: str, value: Any) -> Any:
        """`value` unless it is None or empty text: then the field is missing, as for a protocol buffer."""
        if value is None or value == "":
            violation(self.at(key), f"{proto_path(key)} is not specified")
        return value

    def report(self, entry: str) -> str:
        """Note that `entry`, relative to this message, is read but not honoured; as it is noted."""
        return self._report(entry)

    def close(self) -> None:
        """Report every key nobody took, as it was spelled."""
        for key in self._left:
            self._report(self._spelled[key])
        self._left = {}

    def _numeric(self, key: str, low: float | None, high: float | None, kind: str) -> float | int | None:
        given = self.raw(key)
        if given is None:
            return None
        value = _number(given)
        if value is None or (kind == "TYPE_INT32" and value != value // 1):
            invalid(self.at(key), kind, given)
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = f"at least {low}" if high is None else f"in the range [{low}, {high}]"
            violation(self.at(key), f"{proto_path(key)} must be {bounds}, but is {given}.")
        return value

    def _typed(self, key: str, kind: type) -> Any:
        value = self.raw(key)
        if value is not None and type(value) is not kind:
            invalid(self.at(key), _TYPES[kind], value)
        return value


def invalid(path: str, kind: str, value: Any) -> NoReturn:
    """Raise the 400 for a value of a wrong type, in Google's words."""
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    raise BadRequest(f"Invalid value at '{proto_path(path)}' ({kind}), {shown}", param=path, code="invalid_type")


def violation(path: str, says: str) -> NoReturn:
    """Raise the 400 for a value that cannot be served, in Google's words."""
    message = f"* GenerateContentRequest.{proto_path(path)}: {says}\n"
    raise BadRequest(message, param=path, code="invalid_value")


def json_name(key: str) -> str:
    """`max_output_tokens` and `maxOutputTokens` as `maxOutputTokens`."""
    return re.sub(r"(?<=[a-zA-Z0-9])_([a-z0-9])", lambda match: match[1].upper(), key)


def proto_path(path: str) -> str:
    """`contents[0].inlineData` as `contents[0].inline_data`."""
    return re.sub(r"(?<=[a-zA-Z0-9])([A-Z])", lambda match: "_" + match[1].lower(), path)


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
