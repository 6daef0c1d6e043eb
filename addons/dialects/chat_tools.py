"""Tools of OpenAI Chat Completions, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence

from addons.conversation import Tool, ToolChoice
from addons.dialects.fields import Fields, refuse
from addons.dialects.schemas import resolved


def read_tools(f: Fields) -> tuple[Tool, ...]:
    """The tools that the model is to see, those of the deprecated `functions` too; others are reported."""
    tools = tuple(tool for item in f.objects("tools") if (tool := _tool(item)) is not None)
    return tools + tuple(_function(item) for item in f.objects("functions"))


def _tool(item: Fields) -> Tool | None:
    kind = item.need("type", item.text("type"))
    if kind != "function":
        # Built-in and custom tools have no form a chat template can show; the record says so.
        item.ignored.add(f"tools[type={kind}]")
        return None
    tool = _function(item.need("function", item.object("function")))
    item.close()
    return tool


def _function(item: Fields) -> Tool:
    name, description = item.need("name", item.text("name")), item.text("description") or ""
    schema = item.mapping("parameters")
    tool = Tool(name, description, None if schema is None else resolved(schema))
    item.ignore("strict")
    item.close()
    return tool


def read_choice(f: Fields, tools: Sequence[Tool]) -> ToolChoice:
    """The tool choice, also as the deprecated `function_call`."""
    key = "tool_choice" if "tool_choice" in f else "function_call"
    asked = f.raw(key)
    if asked in (None, "auto"):
        return ToolChoice()
    if asked == "none":
        return ToolChoice("none")
    if asked == "required":
        choice = ToolChoice("required")
    elif isinstance(asked, dict):
        choice = _named_choice(Fields(asked, key, f.ignored))
    else:
        refuse(key, f"Invalid value for '{key}': {asked!r}. Supported values are: none, auto, required, or an object.")
    if choice.mode == "required" and not tools:
        refuse(key, f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.")
    if unknown := sorted(set(choice.names) - {tool.name for tool in tools}):
        refuse(key, f"Invalid value for '{key}': {unknown[0]!r} is none of the tools.")
    return choice


def _named_choice(f: Fields) -> ToolChoice:
    """One function by name, several by `allowed_tools`, or the deprecated `{"name": ...}`."""
    kind = f.text("type") or "function"
    if kind == "allowed_tools":
        allowed = f.need("allowed_tools", f.object("allowed_tools"))
        mode = allowed.need("mode", allowed.text("mode"))
        if mode not in ("auto", "required"):
            refuse(allowed.at("mode"), f"Invalid value for '{allowed.at('mode')}': {mode!r}.")
        names = tuple(_function_name(tool) for tool in allowed.objects("tools"))
        allowed.close()
        return ToolChoice(mode, names)
    if kind != "function":
        refuse(f.at("type"), f"Invalid value for '{f.at('type')}': {kind!r} is not served.")
    return ToolChoice("required", (_function_name(f),))


def _function_name(f: Fields) -> str:
    f.raw("type")
    inner = f.object("function")
    name: str = f.need("name", f.text("name")) if inner is None else inner.need("name", inner.text("name"))
    if inner is not None:
        inner.close()
    f.close()
    return name
