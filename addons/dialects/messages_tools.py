"""Tools of Anthropic Messages: the harness's own, those that the provider defines, and the choice among them.

Some tools are sent without a schema because the provider's models know it by heart: the harness runs them all the
same (bash, the text editor, memory), so the model here is shown the published schema. Tools that the provider
would run itself (web search, code execution) have nobody to run them; they are reported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from addons.conversation import Tool, ToolChoice
from addons.dialects.fields import Fields
from addons.dialects.messages_errors import invalid, refuse
from addons.dialects.schemas import resolved

_DATED = re.compile(r"(bash|text_editor|memory)_(\d{8})")
_UNDOING = frozenset({"20241022", "20250124"})
"""Versions of the text editor that can undo."""


def read_tools(f: Fields) -> tuple[Tool, ...]:
    """The tools that the model is to see; the others are reported as `tools[type=...]`."""
    tools = tuple(tool for item in f.objects("tools") if (tool := _tool(item)) is not None)
    if len({tool.name for tool in tools}) < len(tools):
        refuse("tools", "tools: Tool names must be unique.")
    return tools


def read_choice(f: Fields, tools: Sequence[Tool]) -> tuple[ToolChoice, bool]:
    """The tool choice, and whether one reply may call several tools."""
    asked = f.object("tool_choice")
    if asked is None:
        return ToolChoice(), True
    kind = asked.need("type", asked.text("type"))
    parallel = asked.flag("disable_parallel_tool_use") is not True
    match kind:
        case "auto":
            choice = ToolChoice()
        case "none":
            choice = ToolChoice("none")
        case "any":
            choice = ToolChoice("required")
        case "tool":
            choice = ToolChoice("required", (asked.need("name", asked.text("name")),))
        case _:
            invalid(asked, "type", f"Input should be 'auto', 'any', 'tool' or 'none', not {kind!r}")
    asked.close()
    if choice.mode == "required" and not tools:
        refuse("tool_choice", "tool_choice: tool_choice may only be specified while providing tools.")
    if unknown := set(choice.names) - {tool.name for tool in tools}:
        refuse("tool_choice.name", f"tool_choice.name: Tool '{unknown.pop()}' not found in provided tools")
    return choice, parallel


def _tool(item: Fields) -> Tool | None:
    kind = item.text("type") or "custom"
    if kind == "custom" or "input_schema" in item:
        schema = item.need("input_schema", item.mapping("input_schema"))
        name = item.need("name", item.text("name"))
        tool = Tool(name, item.text("description") or "", resolved(schema))
    elif dated := _DATED.fullmatch(kind):
        tool = _provided(item.need("name", item.text("name")), *dated.groups())
    else:
        item.ignored.add(f"tools[type={kind}]")
        return None
    item.close()
    return tool


def _provided(name: str, family: str, version: str) -> Tool:
    match family:
        case "bash":
            return Tool(name, "Run commands in a bash shell that keeps its state between calls.", _BASH)
        case "memory":
            return Tool(name, "Keep notes in files under /memories, which outlive the conversation.", _MEMORY)
        case _:
            commands = [*_EDITS, "undo_edit"] if version in _UNDOING else list(_EDITS)
            return Tool(name, "View, create and edit text files.", _files(commands, {}))


def _string(says: str) -> dict[str, Any]:
    return {"type": "string", "description": says}


def _files(commands: list[str], more: dict[str, Any]) -> dict[str, Any]:
    """The schema of a tool that does one of `commands` to a file."""
    return {
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": commands, "description": "What to do."},
            "path": _string("Path of the file or directory."),
            "view_range": {
                "type": "array", "items": {"type": "integer"},
                "description": "For `view`: first and last line, counted from 1; -1 is the end of the file.",
            },
            "file_text": _string("For `create`: the text of the new file."),
            "old_str": _string("For `str_replace`: the text to replace, exactly as it is in the file."),
            "new_str": _string("For `str_replace`: the text to put in its place."),
            "insert_line": {"type": "integer", "description": "For `insert`: after which line; 0 is the beginning."},
            "insert_text": _string("For `insert`: the text to insert."),
            **more,
        },
        "required": ["command"] if more else ["command", "path"],
    }  # fmt: skip


_EDITS = ("view", "create", "str_replace", "insert")
_BASH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": _string("The command to run. Needed unless the shell is restarted."),
        "restart": {"type": "boolean", "description": "True restarts the shell."},
    },
}
_MEMORY = _files(
    [*_EDITS, "delete", "rename"],
    {"old_path": _string("For `rename`: the path now."), "new_path": _string("For `rename`: the path after.")},
)
