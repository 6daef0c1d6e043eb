"""The output format that a Gemini call asks for, as vLLM's `structured_outputs`."""

from __future__ import annotations

from typing import Any

from addons.dialects.gemini_fields import GoogleFields, violation
from addons.dialects.gemini_schema import json_schema, plain_schema

_MIME_TYPES = ("text/plain", "application/json", "application/xml", "application/yaml", "text/x.enum")


def output_constraint(config: GoogleFields) -> dict[str, Any] | None:
    """The constraint of a `generationConfig`; None for plain text.

    Raises:
        BadRequest: for a schema that the MIME type does not go with.
    """
    mime = config.text("responseMimeType") or "text/plain"
    if mime not in _MIME_TYPES:
        allowed = ", ".join(f"`{name}`" for name in _MIME_TYPES)
        violation(config.at("responseMimeType"), f"allowed mimetypes are {allowed}.")
    schema = _schema(config)
    newer = _newer_form(config)
    if newer is not None:
        if schema is not None:
            violation(config.at("responseFormat"), "response_format and a response schema are mutually exclusive.")
        mime, schema = newer
    if schema is not None and mime not in ("application/json", "text/x.enum"):
        says = f"Response schema with mime type {mime!r} is unsupported; use 'application/json'."
        violation(config.at("responseMimeType"), says)
    match mime:
        case "application/json":
            return {"json_object": True} if schema is None else {"json": schema}
        case "text/x.enum":
            return {"choice": _choices(config, schema)}
        case "application/xml" | "application/yaml":
            config.report(f"responseMimeType[{mime}]")  # vLLM has no grammar for it
    return None


def _schema(config: GoogleFields) -> dict[str, Any] | None:
    at = config.at("responseSchema")
    own, plain = config.mapping("responseSchema"), config.mapping("responseJsonSchema")
    older = config.mapping("_responseJsonSchema")
    plain = older if plain is None else plain
    if own is not None and plain is not None:
        violation(at, "response_schema and response_json_schema are mutually exclusive.")
    if own is not None:
        converted: dict[str, Any] = json_schema(own, at)
        return converted
    return None if plain is None else plain_schema(plain)


def _choices(config: GoogleFields, schema: dict[str, Any] | None) -> list[str]:
    values = None if schema is None else schema.get("enum")
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        violation(config.at("responseSchema"), "the mime type text/x.enum needs a schema with an enum of strings.")
    return values


def _newer_form(config: GoogleFields) -> tuple[str, dict[str, Any] | None] | None:
    """`responseFormat`: one entry a modality, of which only text is served."""
    found: tuple[str, dict[str, Any] | None] | None = None
    for form in config.messages("responseFormat"):
        text = form.object("text")
        for other in ("audio", "image", "video"):
            if other in form:
                violation(form.at(other), "The requested response format is not supported: only text is.")
        form.close()
        if text is not None:
            mime = (text.text("mimeType") or "text/plain").lower().replace("application_json", "application/json")
            found = mime.replace("text_plain", "text/plain"), text.mapping("schema")
            text.close()
    return found
