"""A tool's JSON Schema as the model is to see it: local references put in their place.

Templates print schemas as they are, and a model that reads `{"$ref": "#/$defs/Edit"}` has to look elsewhere for
the fields. What is recursive stays a reference, and then its definition stays too.
"""

from __future__ import annotations

from typing import Any

_Path = tuple[str, ...]
_DEFINITIONS = ("$defs", "definitions")
_LIMIT = 20_000
"""Most nodes a resolved schema may have: definitions that use each other twice double at every level."""


class _TooLarge(Exception):
    pass


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` with its local `$ref`s replaced; itself where it has none, or where that would be too large."""
    resolver = _Resolver(schema)
    try:
        out = resolver.walk(schema, ())
    except (_TooLarge, RecursionError):
        return schema
    if not resolver.replaced:
        return schema
    assert isinstance(out, dict)
    if not resolver.kept:
        for key in _DEFINITIONS:
            out.pop(key, None)
    return out


class _Resolver:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._nodes = 0
        self.replaced = False
        self.kept = False

    def walk(self, node: Any, at: _Path, followed: frozenset[_Path] = frozenset()) -> Any:
        """`at` is where `node` stands, `followed` the references that led there: one into either is recursive."""
        self._nodes += 1
        if self._nodes > _LIMIT:
            raise _TooLarge
        if isinstance(node, list):
            return [self.walk(item, (*at, str(i)), followed) for i, item in enumerate(node)]
        if not isinstance(node, dict):
            return node
        if isinstance(node.get("$ref"), str):
            path = _path(node["$ref"])
            target = None if path is None else self._target(path)
            if path is None or target is None or path in followed or at[: len(path)] == path:
                self.kept = True
                return node
            self.replaced = True
            beside = {key: value for key, value in node.items() if key != "$ref"}
            return self.walk({**target, **beside}, path, followed | {path})
        # Definitions are resolved where they are used; in their own place they matter only to what stays recursive.
        return {
            key: value if not at and key in _DEFINITIONS else self.walk(value, (*at, key), followed)
            for key, value in node.items()
        }

    def _target(self, path: _Path) -> dict[str, Any] | None:
        """What stands at `path`, None where there is no schema."""
        node: Any = self._root
        for step in path:
            if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            elif isinstance(node, dict) and step in node:
                node = node[step]
            else:
                return None
        return node if isinstance(node, dict) else None


def _path(pointer: str) -> _Path | None:
    """The steps of a JSON pointer into this very schema; None for any other."""
    if not pointer.startswith("#/"):
        return None
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer[2:].split("/"))
