"""What the model says in ten turns: it reasons each time, runs eight commands one by one, does the task, and ends.

The commands' outputs are long and short, failed, unicode, JSON, and look like the model's own markup. Of the calls
every third comes after a text, and every third is spelt otherwise than the chat template would: without spaces, with
escapes.
"""

from __future__ import annotations

import json
from dataclasses import replace

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
_AIDER = (
    "printf '%s\\n' '{task}' " + " ".join(f"'Look at it again, for the time {n}.'" for n in range(2, TURNS + 1)) + " | "
    "PROGRAM --model anthropic/claude-sonnet-4-5 --yes-always --no-check-update --no-fancy-input --no-pretty"
)


def say(prompt: Prompt) -> str:
    """The reply, with reasoning unless a grammar leaves no room for it."""
    if prompt.constraint is not None:
        return act(prompt)
    earlier = [text for role, text in prompt.messages if role == "assistant"]
    thought = (
        f"Step {len(earlier)}. " + "The output says more than it seems to; I compare it with what I expected. " * 3
    )
    return f"<think>\n{thought.strip()}\n</think>\n\n{_visible(prompt, earlier)}"


def talking(harness: Harness, program: str) -> Harness:
    """The harness as it makes ten turns: aider has no tools, so it is asked ten times in one conversation."""
    if harness.name != "aider":
        return harness
    command = ("sh", "-c", _AIDER.replace("PROGRAM", program))
    return replace(harness, command=command, package=None, registry=None, node=None)


def _visible(prompt: Prompt, earlier: list[str]) -> str:
    said = act(prompt)
    if not prompt.tools:
        edited = any(said.strip() in text for text in earlier)
        return f"I looked at it {len(earlier)} times: nothing is left to do." if edited else said
    number = sum("<tool_call>" in text for text in earlier)
    if number >= len(COMMANDS) or "written.txt" not in said:
        return said
    name, arguments = running([tool["function"] for tool in prompt.tools], COMMANDS[number])
    call = {"name": name, "arguments": arguments}
    spelt = json.dumps(call, separators=(",", ":")) if number % 3 == 1 else json.dumps(call, ensure_ascii=False)
    said = f"I go on with step {number}: größer.\n" if number % 3 == 0 else ""
    return f"{said}<tool_call>\n{spelt}\n</tool_call>"
