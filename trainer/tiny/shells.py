"""The tools by which harnesses let a model run commands, and how a session ends."""

import json
from collections.abc import Sequence
from typing import Any

SHELLS = {"bash": "command", "Bash": "command", "run_commands": "commands"}
"""Tools that run a command, and the argument that takes it."""
LISTS = {"commands"}
"""Arguments that take several commands."""
FINISHED = "Done."
"""A reply that calls nothing ends a session."""
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""But for mini-swe-agent, whose prompt asks for this command."""


def arguments_of(tool: str, command: str) -> dict[str, Any]:
    """What `tool` takes to run `command`. Raises KeyError for a tool that runs none."""
    name = SHELLS[tool]
    return {name: [command] if name in LISTS else command}


def ends(reply: str) -> bool:
    """Whether a reply ends its session, in any harness."""
    return reply == FINISHED or SUBMIT in reply


def called(tools: Sequence[dict[str, Any]], command: str) -> str:
    """A call of the first shell among `tools`, in the model's markup. Raises LookupError where there is none."""
    names = [(tool.get("function") or tool)["name"] for tool in tools]
    for name in names:
        if name in SHELLS:
            call = {"name": name, "arguments": arguments_of(name, command)}
            return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    raise LookupError(f"none of the tools is a shell that it knows: {', '.join(names)}")
