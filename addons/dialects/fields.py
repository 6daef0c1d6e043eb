"""Reading a request so that nothing in it is lost.

A :class:`Fields` wraps one JSON object. Each key is taken by name and type; a wrong type is the caller's 400
naming the field; whatever nobody took is reported by :meth:`Fields.close`, under a path without indices
(`messages[].cache_control`), and ends in the turn's `ignored_fields`. JSON null is the same as absence, as
the providers' own SDKs send it.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from addons.errors import BadRequest

_NAMES = {
    dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer",
    float: "a number", type(None): "null",
}  # fmt: skip


class Fields:
    """One JSON object of a request, at `path` (empty for the body itself)."""

    def __init__(self, value: Any, path: str = "", ignored: set[str] | None = None) -> None:
        if not isinstance(value, dict):
            wrong_type(path or "body", "an object", value)
        self._left: dict[str, Any] = {k: v for k, v in value.items() if v is not None}
        self.path = path
        self.ignored: set[str] = set() if ignored is None else ignored

    def at(self, key: str) -> str:
        """The full path of `key`, as the error messages name it."""
        return f"{self.path}.{key}" if self.path else key

    def __contains__(self, key: str) -> bool:
        """Whether `key` is there, not null, and not taken yet."""
        return key in self._left

    def raw(self, key: str) -> Any:
        """Take `key` whatever its type; None when absent."""
        return self._left.pop(key, None)

    def text(self, key: str) -> str | None:
        """Take a string."""
        value: str | None = self._typed(key, str)
        return value

    def flag(self, key: str) -> bool | None:
        """Take a boolean."""
        value: bool | None = self._typed(key, bool)
        return value

    def integer(self, key: str, low: int | None = None, high: int | None = None) -> int | None:
        """Take an integer within [low, high]; 3.0 counts as 3."""
        value = self.number(key, low, high)
        if value is not None and value != int(value):
            wrong_type(self.at(key), "an integer", value)
        return None if value is None else int(value)

    def number(self, key: str, low: float | None = None, high: float | None = None) -> float | None:
        """Take a number within [low, high]."""
        value = self._left.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            wrong_type(self.at(key), "a number", value)
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = f"at least {low}" if high is None else f"between {low} and {high}"
            refuse(self.at(key), f"Invalid value for '{self.at(key)}': {value!r} must be {bounds}.")
        return value

    def object(self, key: str) -> Fields | None:
        """Take an object, to be read in turn (and closed)."""
        value = self._typed(key, dict)
        return None if value is None else Fields(value, self.at(key), self.ignored)

    def objects(self, key: str) -> list[Fields]:
        """Take an array of objects; an absent one is empty."""
        value = self._typed(key, list) or []
        return [Fields(item, f"{self.at(key)}[{i}]", self.ignored) for i, item in enumerate(value)]

    def mapping(self, key: str) -> dict[str, Any] | None:
        """Take an object as it is (a JSON Schema, say): its inside is nobody's field."""
        value: dict[str, Any] | None = self._typed(key, dict)
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """Take a string or an array of strings."""
        value = self._left.pop(key, None)
        items = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(items, list) or not all(isinstance(s, str) for s in items):
            wrong_type(self.at(key), "a string or an array of strings", value)
        return tuple(items)

    def need(self, key: str, value: Any) -> Any:
        """`value` unless it is None: then the field is missing."""
        if value is None:
            raise BadRequest(
                f"Missing required parameter: '{self.at(key)}'.", param=self.at(key),
                code="missing_required_parameter",
            )  # fmt: skip
        return value

    def ignore(self, *keys: str) -> None:
        """Report `keys` as read but not honoured."""
        for key in keys:
            if self._left.pop(key, None) is not None:
                self._report(key)

    def close(self) -> None:
        """Report every key nobody took."""
        for key in self._left:
            self._report(key)
        self._left = {}

    def _report(self, key: str) -> str:
        name = without_indices(self.at(key))
        self.ignored.add(name)
        return name

    def _typed(self, key: str, kind: type) -> Any:
        value = self._left.pop(key, None)
        if value is not None and type(value) is not kind:
            wrong_type(self.at(key), _NAMES[kind], value)
        return value


def refuse(param: str, message: str, code: str = "invalid_value") -> NoReturn:
    """Raise the caller's 400 for `param`."""
    raise BadRequest(message, param=param, code=code)


def wrong_type(param: str, expected: str, value: Any) -> NoReturn:
    """Raise the caller's 400 for a value of a wrong type."""
    got = _NAMES.get(type(value), type(value).__name__)
    refuse(param, f"Invalid type for '{param}': expected {expected}, but got {got} instead.", "invalid_type")


def without_indices(path: str) -> str:
    """A path as `ignored_fields` has it: `messages[].content`."""
    return re.sub(r"\[\d+\]", "[]", path)
