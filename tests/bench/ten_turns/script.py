"""What the model says in ten turns: it reasons each time, runs commands one by one, does the task, and ends.

A harness that can take a conversation up again is told to stop half-way, ends, and is started with a second request.

The commands' outputs are long and short, failed, unicode, JSON, and look like the model's own markup. Of the calls
every third comes after a text, and every third is spelt otherwise than the chat template would: without spaces, with
escapes.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

from addons.matrix.actor import act, running
from addons.matrix.engine import Prompt
from certs.harnesses import Harness

TURNS = 10
COMMANDS = (
    "printf 'alpha\\nbeta\\n\\n  gamma\\t1\\n' > notes.txt && cat notes.txt",
    "ls -la /nonexistent/größe",
    "seq 1 200",
    "echo 'Grüße, 한국어, 🧑\u200d🚀 — “quoted”  and  spaced '",
    'printf \'{"b": 1.0, "a": [null, true, "é"]}\\n\'',
    "printf '<|im_%s|> <tool_%s>{} <%s>\\n' end call think",
    "echo out; echo err >&2; exit 3",
    "wc -c notes.txt",
)
_HALF = 4
_STOP = "Stop when half of it is done: I shall ask for the rest."
_REST = "Now do the rest of it."
_RESUME = {
    "claude-code": (1, ["-c"]),
    "codex": (2, ["resume", "--last"]),
    "opencode": (2, ["-c"]),
    "pi": (1, ["-c"]),
    "gemini-cli": (1, ["--resume", "latest"]),
    "qwen-code": (1, ["-c"]),
    "continue": (1, ["--resume"]),
    "copilot": (1, ["--continue"]),
    "vibe": (1, ["-c"]),
    "kimi": (1, ["-c"]),
    "hermes": (2, ["--continue"]),
    "openhands": (1, ["--resume", "--last"]),
    "kilo": (2, ["-c"]),
}
"""What makes each take up its last conversation, and behind how many words of its command."""


def say(prompt: Prompt) -> str:
    """The reply, with reasoning unless a grammar leaves no room for it."""
    if prompt.constraint is not None:
        return act(prompt)
    earlier = [text for role, text in prompt.messages if role == "assistant"]
    thought = (
        f"Step {len(earlier)}. " + "The output says more than it seems to; I compare it with what I expected. " * 3
    )
    return f"<think>\n{thought.strip()}\n</think>\n\n{_visible(prompt, earlier)}"


def talking(harness: Harness, program: Path) -> Harness:
    """The harness as it makes ten turns: in two requests where it can. aider has no tools, so it is asked ten times."""
    words = list(harness.command)
    if harness.name == "aider":
        asked = ["{task}", *(f"Look at it again, for the time {number}." for number in range(2, TURNS + 1))]
        at = words.index("--message")
        words[at : at + 2] = ["--no-fancy-input", "--no-pretty"]
        script = f"printf '%s\\n' {shlex.join(asked)} | {shlex.join(words)}"
    elif harness.name in _RESUME:
        behind, flags = _RESUME[harness.name]
        again = [*words[:behind], *flags, *words[behind:]]
        script = " && ".join(
            shlex.join(word.replace("{task}", request) for word in command)
            for command, request in ((words, "{task} " + _STOP), (again, _REST))
        )
    else:
        return harness
    path = f"PATH={shlex.quote(str(program.parent))}:$PATH"  # the Node.js that it wants is there, too
    return replace(harness, command=("sh", "-c", f"{path}; {script}"), package=None, registry=None, node=None)


def _visible(prompt: Prompt, earlier: list[str]) -> str:
    said = act(prompt)
    if not prompt.tools:
        edited = any(said.strip() in text for text in earlier)
        return f"I looked at it {len(earlier)} times: nothing is left to do." if edited else said
    asked = "\n".join(text for role, text in prompt.messages if role == "user")
    number = sum("<tool_call>" in text for text in earlier)
    if "written.txt" not in said or number == len(COMMANDS) - (_STOP in asked):
        return said
    if number == _HALF and _STOP in asked and _REST not in asked:
        return "Half of it is done."
    name, arguments = running([tool["function"] for tool in prompt.tools], COMMANDS[number])
    call = {"name": name, "arguments": arguments}
    spelt = json.dumps(call, separators=(",", ":")) if number % 3 == 1 else json.dumps(call, ensure_ascii=False)
    said = f"I go on with step {number}: größer.\n" if number % 3 == 0 else ""
    return f"{said}<tool_call>\n{spelt}\n</tool_call>"
