"""A scripted model that shows how a harness words things: `tap scripted trainer/tiny/probe.py`, used by `watch.py`.

It runs five commands whose output is known, one a turn, and ends: what comes back is the harness's own way of telling
what a command printed, that it printed nothing, and that it failed.
"""

from typing import Any

from trainer.tiny.shells import FINISHED, SUBMIT, called

PROMPT = "Run the five probes"
COMMANDS = ("cat list.txt", "test -e list.txt", "cat missing.txt", "ls; false", "test -e missing.txt")
SHOWN, COMPLAINT, LISTED = "pear\napple\n", "cat: missing.txt: No such file or directory\n", "list.txt\n"
"""What the first prints, the third to its standard error, the fourth before it fails."""


def reply(prompt: Any) -> str:
    """The next probe as a call of the shell tool that is offered, or the end."""
    texts = [text for _, text in prompt.messages]
    if not any(PROMPT in text for text in texts):
        return FINISHED
    done = sum(role == "assistant" and "<tool_call>" in text for role, text in prompt.messages)
    steps = COMMANDS + ((SUBMIT,) if any(SUBMIT in text for text in texts) else ())
    if done >= len(steps):
        return FINISHED
    return called(prompt.tools, steps[done])
