"""Gemini's own schema language to JSON Schema.

Gemini describes parameters in a subset of OpenAPI 3.0: types in capitals, `nullable`, sizes as strings,
`propertyOrdering`. Whatever is plain JSON Schema already, or unknown, is passed on as it is.
"""

from __future__ import annotations

from typing import Any

from addons.dialects.gemini_fields import invalid, json_name

_TYPES = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}
_SIZES = {"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"}
_KNOWN = _SIZES | {"anyOf", "propertyOrdering", "additionalProperties"}
_SCHEMAS = {"items", "additionalProperties"}
_MAPS = {"properties": "properties", "defs": "$defs", "$defs": "$defs"}


def json_schema(schema: Any, path: str) -> Any:
    """A Gemini `Schema` at `path` as a JSON Schema.

    Raises:
        BadRequest: for a type that does not exist.
    """
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    nullable, order = False, None
    for key, value in schema.items():
        name = json_name(key) if json_name(key) in _KNOWN else key
        at = f"{path}.{name}"
        if value is None and name not in ("default", "example"):
            continue
        if name == "type":
            if value != "TYPE_UNSPECIFIED":
                out["type"] = _type(value, at)
        elif name == "nullable":
            nullable = value is True
        elif name == "propertyOrdering":
            order = value
        elif name in _MAPS and isinstance(value, dict):
            out[_MAPS[name]] = {k: json_schema(v, f"{at}.{k}") for k, v in value.items()}
        elif name in _SCHEMAS:
            out[name] = json_schema(value, at)
        elif name == "anyOf" and isinstance(value, list):
            out[name] = [json_schema(v, f"{at}[{i}]") for i, v in enumerate(value)]
        elif name in _SIZES and isinstance(value, str) and value.isdigit():
            out[name] = int(value)
        elif name == "ref":
            out["$ref"] = value.replace("#/defs/", "#/$defs/") if isinstance(value, str) else value
        elif name == "example":
            out["examples"] = [value]
        else:
            out[name] = value
    if isinstance(order, list) and isinstance(out.get("properties"), dict):
        out["properties"] = _ordered(out["properties"], order)
    return _nullable(out) if nullable else out


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that is said to be JSON Schema, with types in capitals made what JSON Schema calls them.

    Google's own CLI writes Gemini's types into `responseJsonSchema`, and Google takes them.
    """
    out: dict[str, Any] = _small_types(schema)
    return out


def _small_types(value: Any) -> Any:
    if isinstance(value, list):
        return [_small_types(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: one.lower() if key == "type" and isinstance(one, str) and one in _TYPES else _small_types(one)
        for key, one in value.items()
    }


def _type(value: Any, at: str) -> Any:
    if not isinstance(value, str):
        return value  # JSON Schema's list of types
    if value.upper() not in _TYPES:
        invalid(at, "TYPE_ENUM", value)
    return value.lower()


def _ordered(properties: dict[str, Any], order: list[Any]) -> dict[str, Any]:
    first = [name for name in order if isinstance(name, str) and name in properties]
    return {name: properties[name] for name in [*first, *properties]}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    if isinstance(schema.get("type"), str) and schema["type"] != "null":
        schema["type"] = [schema["type"], "null"]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema
