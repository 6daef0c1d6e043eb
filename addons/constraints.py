"""Forced tool calls and output formats, as a grammar for vLLM.

The grammar writes the model's own markup, so the reply parser reads a forced call like any other. Constrained
sampling changes the distribution; such turns are marked untrainable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from addons.conversation import Call, Tool, ToolChoice
from addons.errors import BadRequest
from addons.markup import CallMarkup
from addons.python_grammar import python_arguments
from replay import codec

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


def constraint_of(call: Call, markup: CallMarkup | None, *, thinking: bool = False) -> dict[str, Any] | None:
    """vLLM's `structured_outputs` for a call; None when the model is free.

    A model that may call tools and must answer in a format does either: its calls are no answers. Where the prompt
    has opened its reasoning (`thinking`), it reasons first, freely.

    Raises:
        BadRequest: the calls of this model cannot be forced.
    """
    tools, choice, asked = call.conversation.tools, call.tool_choice, call.constraint
    forced = tool_constraint(choice, tools, markup, parallel=call.parallel_tool_calls, thinking=thinking)
    if asked is None or (forced is not None and choice.mode == "required"):
        return forced
    if not asked.keys() & {"json", "json_object"}:
        return asked
    form = _json(asked.get("json", _ANY_OBJECT))
    if markup is not None and markup.before_answer:
        form = {"type": "tag", "begin": markup.before_answer, "content": form, "end": ""}
    if tools and markup is not None:
        form = {"type": "or", "elements": [_calls(choice, tools, markup, parallel=call.parallel_tool_calls), form]}
    return _structural_tag(_after_reasoning(form) if thinking else form)


def tool_constraint(
    choice: ToolChoice, tools: Sequence[Tool], markup: CallMarkup | None, *, parallel: bool, thinking: bool = False
) -> dict[str, Any] | None:
    """vLLM's `structured_outputs` for a choice; None when the model is free.

    Args:
        choice: what the harness asked.
        tools: the tools offered.
        markup: how the model writes a call.
        parallel: several calls may follow one another.
        thinking: the prompt has opened the model's reasoning.

    Raises:
        BadRequest: no grammar is known for the model's markup.
    """
    if choice.mode != "required" and not choice.names:
        return None
    if markup is None:
        raise BadRequest(
            "Invalid value for 'tool_choice': the calls of this model cannot be forced; use 'auto' or 'none'.",
            param="tool_choice",
        )
    form = _calls(choice, tools, markup, parallel=parallel)
    if choice.mode != "required":
        tags = [form] if markup.section[0] else form["tags"]
        form = {"type": "triggered_tags", "triggers": [markup.section[0] or markup.before_name], "tags": tags}
    elif thinking:
        form = _after_reasoning(form)
    return _structural_tag(form)


def _calls(choice: ToolChoice, tools: Sequence[Tool], markup: CallMarkup, *, parallel: bool) -> dict[str, Any]:
    """Calls and nothing else."""
    calls = {
        "type": "tags_with_separator",
        "tags": [_tag(tool, markup) for tool in tools if not choice.names or tool.name in choice.names],
        "separator": markup.separator or "",
        "at_least_one": True,
        "stop_after_first": not parallel or markup.separator is None,
    }
    opening, closing = markup.section
    return {"type": "tag", "begin": opening, "content": calls, "end": closing} if opening else calls


def _after_reasoning(form: dict[str, Any]) -> dict[str, Any]:
    reasoning = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": "</think>"}
    return {"type": "sequence", "elements": [reasoning, {"type": "regex", "pattern": r"\s{0,2}"}, form]}


def _structural_tag(form: dict[str, Any]) -> dict[str, Any]:
    return {"structural_tag": codec.dumps({"type": "structural_tag", "format": form}).decode()}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    """JSON may hold any amount of white space, and a model forced into it may fill its whole output with that."""
    return {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 1}


def _tag(tool: Tool, markup: CallMarkup) -> dict[str, Any]:
    schema = tool.parameters or _ANY_OBJECT
    return {
        "type": "tag",
        "begin": markup.opening(tool.name),
        "content": _arguments(schema, markup),
        "end": markup.closing,
    }


def _arguments(schema: dict[str, Any], markup: CallMarkup) -> dict[str, Any]:
    match markup.arguments:
        case "json":
            return _json(schema)
        case "xml":
            return {"type": "qwen_xml_parameter", "json_schema": _with_items(schema)}
        case "glm":
            return _json(_with_items(schema)) | {"style": "glm_xml"}
        case "python":
            return {"type": "grammar", "grammar": python_arguments(schema)}


def _with_items(schema: dict[str, Any]) -> dict[str, Any]:
    """An array of anything says so: in the engine's XML forms one without `items` could only be empty."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    listed = {
        name: {**value, "items": {}}
        for name, value in properties.items()
        if isinstance(value, dict) and value.get("type") == "array" and "items" not in value
    }
    return {**schema, "properties": {**properties, **listed}}
