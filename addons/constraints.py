"""Forced tool calls and output formats, as a grammar for vLLM.

The grammar writes the model's own markup, so the reply parser reads a forced call like any other. Constrained
sampling changes the distribution; such turns are marked untrainable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from addons.conversation import Call, Tool, ToolChoice
from addons.errors import BadRequest
from addons.markup import CallMarkup

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


def constraint_of(call: Call, markup: CallMarkup | None) -> dict[str, Any] | None:
    """vLLM's `structured_outputs` for a call; None when the model is free.

    A model that may call tools and must answer in a format does either: its calls are no answers.

    Raises:
        BadRequest: the calls of this model cannot be forced.
    """
    tools, choice, asked = call.conversation.tools, call.tool_choice, call.constraint
    forced = tool_constraint(choice, tools, markup, parallel=call.parallel_tool_calls)
    if asked is None or (forced is not None and choice.mode == "required"):
        return forced
    if not asked.keys() & {"json", "json_object"}:
        return asked
    form = _json(asked.get("json", _ANY_OBJECT))
    if tools and markup is not None:
        form = {"type": "or", "elements": [_calls(choice, tools, markup, parallel=call.parallel_tool_calls), form]}
    return _structural_tag(form)


def tool_constraint(
    choice: ToolChoice, tools: Sequence[Tool], markup: CallMarkup | None, *, parallel: bool
) -> dict[str, Any] | None:
    """vLLM's `structured_outputs` for a choice; None when the model is free.

    Args:
        choice: what the harness asked.
        tools: the tools offered.
        markup: how the model writes a call.
        parallel: several calls may follow one another.

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
        form = {"type": "triggered_tags", "triggers": [markup.before_name], "tags": form["tags"]}
    return _structural_tag(form)


def _calls(choice: ToolChoice, tools: Sequence[Tool], markup: CallMarkup, *, parallel: bool) -> dict[str, Any]:
    """Calls and nothing else."""
    return {
        "type": "tags_with_separator",
        "tags": [_tag(tool, markup) for tool in tools if not choice.names or tool.name in choice.names],
        "separator": markup.separator or "",
        "at_least_one": True,
        "stop_after_first": not parallel or markup.separator is None,
    }


def _structural_tag(form: dict[str, Any]) -> dict[str, Any]:
    return {"structural_tag": orjson.dumps({"type": "structural_tag", "format": form}).decode()}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    """JSON may hold any amount of white space, and a model forced into it may fill its whole output with that."""
    return {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 1}


def _tag(tool: Tool, markup: CallMarkup) -> dict[str, Any]:
    schema = tool.parameters or _ANY_OBJECT
    content = _json(schema) if markup.arguments == "json" else {"type": "qwen_xml_parameter", "json_schema": schema}
    return {"type": "tag", "begin": markup.opening(tool.name), "content": content, "end": markup.closing}
