"""What the scripted model says: a tool call that writes a file, then that it is done.

It knows no harness. It reads what is offered, takes the first tool that can run a command or write a file, and fills
what the tool's schema requires. Text stands in for a call only where no tools are offered at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from addons.matrix.engine import Prompt
from addons.matrix.schemas import instance

WORD = "harnesstap"
TASK = "Write the single word harnesstap into the file {path} and do nothing else. Then say that you are finished."
"""`{path}` is absolute: a tool may want it so, and tasks that run side by side are told apart by it."""

_PATH = re.compile(re.escape(TASK.split("{")[0]) + r"(/\S+)")
_SHELL = ("command", "cmd", "commands", "script")
_WRITE = (
    ("file_path", "path", "filePath", "absolute_path", "filepath", "filename"),
    ("content", "contents", "text", "file_text", "fileContent"),
)
_ARGV = ("shell", "local_shell")
"""Their `command` is a program and its arguments."""
_FINISHED = "The file is written. I am finished."
_FINISHERS = ("finish", "attempt_completion", "task_complete", "submit", "submit_and_exit")
_SUBMIT = re.compile(r"echo (COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT)")
"""mini-swe-agent ends when a command prints this."""


class NoTool(Exception):
    """Nothing that is offered can write a file."""


def act(prompt: Prompt) -> str:
    """The reply to `prompt`, in the model's markup."""
    if prompt.constraint is not None:
        return _forced(prompt.constraint)
    text = "\n".join(content for _, content in prompt.messages)
    path = _path(prompt.messages)
    if not prompt.tools:
        return _edit(path) if path and "SEARCH/REPLACE" in text else "Write a file"
    tools = [tool["function"] for tool in prompt.tools]
    if path is None:
        return _FINISHED
    calls = [text for role, text in prompt.messages if role == "assistant" and "<tool_call>" in text]
    if not any(path in text for text in calls):
        try:
            return written(*_writing(tools, path))
        except NoTool as error:
            return str(error)
    if _SUBMIT.search(text):
        return written(*running(tools, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"))
    for tool in tools:
        if tool["name"] in _FINISHERS:
            return written(tool["name"], instance(tool.get("parameters") or {}))
    return _FINISHED


def _path(messages: Sequence[tuple[str, str]]) -> str | None:
    """The file that the task names; the last one, should an old task be quoted."""
    found = [match for _, content in messages for match in _PATH.findall(content)]
    return found[-1] if found else None


def _writing(tools: Sequence[Mapping[str, Any]], path: str) -> tuple[str, Any]:
    """A call that writes the file."""
    try:
        return running(tools, f"echo {WORD} > {path}")
    except NoTool:
        pass
    for tool in tools:
        parameters = tool.get("parameters") or {}
        properties = parameters.get("properties", {})
        where = next((name for name in _WRITE[0] if name in properties), None)
        what = next((name for name in _WRITE[1] if name in properties), None)
        if where and what:
            return str(tool["name"]), {**instance(parameters), where: path, what: WORD + "\n"}
    names = ", ".join(str(tool["name"]) for tool in tools)
    raise NoTool(f"None of the tools offered can write a file: {names}")


def running(tools: Sequence[Mapping[str, Any]], command: str) -> tuple[str, Any]:
    """The name and arguments of a call that runs a command: by a tool that needs one, and not one of a few words.

    Raises NoTool.
    """
    for tool in tools:
        parameters = tool.get("parameters") or {}
        required = parameters.get("required", ())
        for name in (name for name in _SHELL if name in required):
            shape = parameters["properties"][name]
            if "enum" in shape:
                continue
            value: Any = command
            if shape.get("type") == "array":
                value = [_item(shape.get("items", {}), parameters, command)]
                if tool["name"] in _ARGV:
                    value = ["sh", "-c", command]
            return str(tool["name"]), {**instance(parameters), name: value}
        if "tools.exec_command(" in tool.get("description", ""):  # Codex: JavaScript that calls the real tools
            return str(tool["name"]), {"input": f"text(await tools.exec_command({json.dumps({'cmd': command})}))"}
    raise NoTool("None of the tools offered runs a command")


def _item(schema: Mapping[str, Any], root: Mapping[str, Any], command: str) -> Any:
    """One of several commands: a text, or an object that holds it."""
    filled = instance(schema, root)
    return {**filled, **dict.fromkeys(filled.keys() & {*_SHELL}, command)} if isinstance(filled, dict) else command


def written(name: str, arguments: Any) -> str:
    """A tool call in the model's markup."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _edit(path: str | None) -> str:
    """A new file, for a harness whose edits are text (aider)."""
    fence = "```"
    return f"{path}\n{fence}\n<<<<<<< SEARCH\n=======\n{WORD}\n>>>>>>> REPLACE\n{fence}\n"


def _forced(constraint: Mapping[str, Any]) -> str:
    """A text that the grammar allows: a call where one is forced, an instance of the schema elsewhere."""
    if "structural_tag" in constraint:
        return _tagged(json.loads(constraint["structural_tag"])["format"])
    if "choice" in constraint:
        return str(constraint["choice"][0])
    if "regex" in constraint or "grammar" in constraint:
        raise ValueError(f"the script cannot satisfy {sorted(constraint)}")
    return json.dumps(instance(constraint.get("json") or {"type": "object"}))


def _tagged(form: Mapping[str, Any]) -> str:
    match form["type"]:
        case "json_schema":
            return json.dumps(instance(form["json_schema"]))
        case "tag":
            return str(form["begin"]) + _tagged(form["content"]) + str(form["end"])
        case "tags_with_separator" | "triggered_tags":
            return _tagged(form["tags"][0])
        case "or":
            return _tagged(form["elements"][-1])  # the format; the calls come first
        case other:
            raise ValueError(f"the script cannot satisfy a structural tag of type {other!r}")
