"""A scripted model that shows how a harness words things: `tap scripted trainer/tiny/probe.py`, used by `watch.py`.

It runs five commands whose output is known, one a turn, and ends: what comes back is the harness's own way of telling
what a command printed, that it printed nothing, and that it failed.
"""

import json
from typing import Any

PROMPT = "Run the five probes"
COMMANDS = ("cat list.txt", "test -e list.txt", "cat missing.txt", "ls; false", "test -e missing.txt")
SHOWN, COMPLAINT, LISTED = "pear\napple\n", "cat: missing.txt: No such file or directory\n", "list.txt\n"
"""What the first prints, the third to its standard error, the fourth before it fails."""
SHELLS = {"bash": "command", "Bash": "command", "run_commands": "commands"}
"""Tools that run a command, and the argument that takes it."""
LISTS = {"commands"}
"""Arguments that take several commands."""
FINISHED = "Done."
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def arguments_of(tool: str, command: str) -> dict[str, Any]:
    """What `tool` takes to run `command`. Raises KeyError for a tool that runs none."""
    name = SHELLS[tool]
    return {name: [command] if name in LISTS else command}


def reply(prompt: Any) -> str:
    """The next probe as a call of the shell tool that is offered, or the end."""
    texts = [text for _, text in prompt.messages]
    if not any(PROMPT in text for text in texts):
        return FINISHED
    done = sum(role == "assistant" and "<tool_call>" in text for role, text in prompt.messages)
    steps = COMMANDS + ((SUBMIT,) if any(SUBMIT in text for text in texts) else ())
    if done >= len(steps):
        return FINISHED
    names = [(tool.get("function") or tool)["name"] for tool in prompt.tools]
    tool = next(name for name in names if name in SHELLS)
    call = {"name": tool, "arguments": arguments_of(tool, steps[done])}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
