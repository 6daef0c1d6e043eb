"""The grammar of a call's arguments as Python writes them, for engines that know only JSON by its schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LITERALS = r"""
value ::= string | json | number | "True" | "False" | "None" | "true" | "false" | "null" | list | mapping
string ::= "'" ([^'\\\r\n] | "\\" [\\'"nrt])* "'"
json ::= "\"" ([^"\\\r\n] | "\\" [\\"nrt])* "\""
integer ::= "-"? ("0" | [1-9] [0-9]*)
number ::= integer ("." [0-9]+)? ([eE] [+\-]? [0-9]+)?
list ::= "[" (value (", " value)*)? "]"
mapping ::= "{" ((string | json) ": " value (", " (string | json) ": " value)*)? "}"
name ::= [a-zA-Z_] [a-zA-Z0-9_]*
"""
_TYPES = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": '("True" | "False")',
    "null": '"None"',
    "array": "list",
    "object": "mapping",
}


def python_arguments(schema: dict[str, Any]) -> str:
    """EBNF of `key=value, ...` for a tool's parameters: the required ones first, the others in order or not at all.

    Types are held at the first level; inside lists and mappings all is free, and may be JSON, as templates write it.
    """
    properties: dict[str, Any] = schema.get("properties") or {}
    if not properties:
        return 'root ::= (name "=" value (", " name "=" value)*)?\n' + _LITERALS
    required = [key for key in properties if key in schema.get("required", ())]
    optional = [key for key in properties if key not in required]
    rules = [f"a{n} ::= {_literal(key + '=')} {_value(properties[key])}" for n, key in enumerate(required + optional)]
    if required:
        some = ' ", " '.join(f"a{n}" for n in range(len(required)))
        root = " ".join([some, *(f'(", " a{n})?' for n in range(len(required), len(properties)))])
    else:
        root = " | ".join(['""', *(_from(n, len(optional)) for n in range(len(optional)))])
    return "\n".join([f"root ::= {root}", *rules]) + "\n" + _LITERALS


def _from(first: int, count: int) -> str:
    """Arguments that begin with one of them, and may go on with any that follow it."""
    return " ".join([f"a{first}", *(f'(", " a{n})?' for n in range(first + 1, count))])


def _value(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "value"
    options: Sequence[Any] = schema.get("enum") or ([schema["const"]] if "const" in schema else ())
    if options and all(isinstance(option, str) and "'" not in option and "\\" not in option for option in options):
        return "(" + " | ".join(_literal(f"'{option}'") for option in options) + ")"
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if not all(kind in _TYPES for kind in kinds):
        return "value"
    return "(" + " | ".join(_TYPES[kind] for kind in kinds) + ")"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
