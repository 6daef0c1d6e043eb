"""The smallest JSON value that a schema takes: for the arguments a tool requires, and for forced output formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DEPTH = 12


def instance(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """A value of `schema`: required properties only, the first alternative, the first of an enum."""
    root = schema if root is None else root
    if depth > _DEPTH:
        return None
    if isinstance(reference := schema.get("$ref"), str):
        return instance(_resolve(reference, root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return instance(schema[key][0], root, depth + 1)
    if schema.get("allOf"):
        merged: dict[str, Any] = {}
        for part in schema["allOf"]:
            value = instance(part, root, depth + 1)
            merged |= value if isinstance(value, dict) else {}
        return merged
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    match str(kind).lower() if kind else "object" if "properties" in schema else "string":
        case "object":
            properties = schema.get("properties", {})
            wanted = schema.get("required", ())
            return {name: instance(properties.get(name, {}), root, depth + 1) for name in wanted}
        case "array":
            return [instance(schema.get("items", {}), root, depth + 1) for _ in range(schema.get("minItems", 0))]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "write the file".ljust(int(schema.get("minLength", 0)), ".")


def _resolve(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    resolved: Mapping[str, Any] = found
    return resolved
