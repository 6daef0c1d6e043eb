"""The tools of a Responses call: as the model sees them, and as the harness wants their calls back.

A chat template knows one kind of tool, a function with JSON arguments. So a custom tool is shown as a function
with one string `input`, a tool of a namespace as `namespace__name`, and the shell and tool search that a
harness runs itself as functions of their own; an :class:`Offer` remembers what each of them really is. Calls go
through :func:`wire` on their way out and through :func:`call_of` on their way back in, and come back as they
were sampled, or the next turn could not be told to continue this one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from addons.conversation import Tool, ToolCall
from addons.dialects.fields import Fields
from addons.dialects.responses_parts import unheeded
from addons.dialects.schemas import resolved

Kind = Literal["function", "custom", "local_shell", "tool_search"]

_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_SHELL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
        "working_directory": {"type": "string"},
        "timeout_ms": {"type": "integer"},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "user": {"type": "string"},
    },
    "required": ["command"],
}
_SHELL_TYPES: dict[str, type] = {"command": list, "working_directory": str, "timeout_ms": int, "env": dict, "user": str}


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool the model may call. `tool` is what it sees, under the flat name; the rest is the harness's word."""

    kind: Kind
    tool: Tool
    name: str
    namespace: str | None = None


Offers = Mapping[str, Offer]
"""Offers by the name that the model calls them by."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A call as an output item, still without its id.

    `streamed` names the field whose text is streamed and the stem of its events; None for an item that comes whole.
    """

    prefix: str
    item: dict[str, Any]
    streamed: tuple[str, str] | None = None


def flat(name: str, namespace: str | None) -> str:
    """The one name that the model calls a tool by."""
    return f"{namespace}__{name}" if namespace else name


def read_tools(tools: list[Fields], offers: dict[str, Offer], namespace: str | None = None, about: str = "") -> None:
    """Add tools to `offers`. Those that only the provider can run are reported, never refused."""
    for item in tools:
        kind = item.need("type", item.text("type"))
        if kind == "namespace" and namespace is None:
            name = item.need("name", item.text("name"))
            read_tools(item.objects("tools"), offers, name, item.text("description") or "")
            item.close()
        elif kind in ("function", "custom"):
            offer = _named(kind, item, namespace, about)
            offers[offer.tool.name] = offer
            about = ""  # the namespace's own description stands once, with its first tool
        elif kind == "local_shell":
            tool = Tool("local_shell", "Run a command on the user's machine.", _SHELL)
            offers[tool.name] = Offer("local_shell", tool, tool.name)
            item.close()
        elif kind == "tool_search" and item.text("execution") == "client":
            tool = Tool("tool_search", item.text("description") or "", item.mapping("parameters"))
            offers[tool.name] = Offer("tool_search", tool, tool.name)
            item.close()
        else:
            item.ignored.add(f"tools[type={kind}]")


def _named(kind: Literal["function", "custom"], item: Fields, namespace: str | None, about: str) -> Offer:
    name = item.need("name", item.text("name"))
    description = "\n\n".join(text for text in (about, item.text("description")) if text)
    if item.flag("strict"):
        unheeded(item, "strict")
    if kind == "function":
        schema = item.mapping("parameters")
        parameters = None if schema is None else resolved(schema)
    else:
        parameters, description = _INPUT, description + _grammar(item)
    if item.flag("defer_loading"):
        unheeded(item, "defer_loading")
    item.close()
    return Offer(kind, Tool(flat(name, namespace), description, parameters), name, namespace)


def _grammar(item: Fields) -> str:
    """What a custom tool's format asks of its input, in words: it is shown, not enforced."""
    form = item.object("format")
    if form is None or form.text("type") != "grammar":
        return ""
    unheeded(item, "format")
    syntax, definition = form.text("syntax"), form.need("definition", form.text("definition"))
    form.close()
    return f"\n\nThe input must match this {syntax or 'lark'} grammar:\n{definition}"


def wire(call: ToolCall, offers: Offers) -> Wire:
    """How the harness wants `call`. One that does not fit its own kind goes out as a function call: never changed."""
    offer = offers.get(call.name)
    kind = "function" if offer is None else offer.kind
    if kind == "local_shell" and (action := _shell_action(call.arguments)) is not None:
        return Wire("lsh_", {"type": "local_shell_call", "call_id": call.id, "action": action, "status": "completed"})
    if kind == "tool_search":
        arguments = _object(call.arguments)
        return Wire("tsc_", {
            "type": "tool_search_call", "call_id": call.id, "execution": "client", "status": "completed",
            "arguments": call.arguments if arguments is None else arguments,
        })  # fmt: skip
    named: dict[str, Any] = {"call_id": call.id, "name": call.name if offer is None else offer.name}
    if offer is not None and offer.namespace:
        named["namespace"] = offer.namespace
    if kind == "custom":
        item = {"type": "custom_tool_call", **named, "input": _input(call.arguments), "status": "completed"}
        return Wire("ctc_", item, ("input", "custom_tool_call_input"))
    item = {"type": "function_call", **named, "arguments": call.arguments, "status": "completed"}
    return Wire("fc_", item, ("arguments", "function_call_arguments"))


def call_of(item: Fields, kind: str) -> ToolCall:
    """A call that the harness sends back: the inverse of :func:`wire`. Takes the item's fields, but not its id."""
    call_id = item.text("call_id")
    if kind == "local_shell_call":
        action = item.need("action", item.mapping("action"))
        keep = {key: value for key, value in action.items() if key in _SHELL_TYPES and value not in (None, {})}
        return ToolCall(item.need("call_id", call_id), "local_shell", json.dumps(keep, ensure_ascii=False))
    item.need("call_id", call_id)
    if kind == "tool_search_call":
        item.raw("execution")
        arguments = item.need("arguments", item.raw("arguments"))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return ToolCall(str(call_id), "tool_search", text)
    name = flat(item.need("name", item.text("name")), item.text("namespace"))
    if kind == "custom_tool_call":
        return ToolCall(str(call_id), name, _arguments(item.need("input", item.text("input"))))
    return ToolCall(str(call_id), name, item.need("arguments", item.text("arguments")))


def _input(arguments: str) -> str:
    """A custom tool's input. Arguments that are not exactly that go out as they are, for the tool to complain about."""
    value = _object(arguments)
    if value is not None and value.keys() == {"input"} and isinstance(value["input"], str):
        return value["input"]
    return arguments


def _arguments(text: str) -> str:
    """The arguments that :func:`_input` made `text` of: an object with other fields was sampled as one."""
    value = _object(text)
    if value is not None and not (value.keys() == {"input"} and isinstance(value["input"], str)):
        return text
    return json.dumps({"input": text}, ensure_ascii=False)


def _shell_action(arguments: str) -> dict[str, Any] | None:
    value = _object(arguments)
    if value is None or not value.get("command") or not value.keys() <= _SHELL_TYPES.keys():
        return None
    env = value.get("env", {})
    fits = all(type(value[key]) is _SHELL_TYPES[key] for key in value)
    if not fits or not all(isinstance(s, str) for s in (*value["command"], *env.values())):
        return None
    return {"type": "exec", **value, "env": env}


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
