"""A teacher for the tiny model: knows the answers of the training tasks, and errs now and then.

    tap scripted trainer/tiny/teacher.py --model trainer/tiny/checkpoint

It says the right command to whatever shell tool a harness offers, and then ends as that harness wants it. One session
in four begins with a wrong command, as a real teacher's would; some of these end unsolved. It keeps nothing: what it
has done so far it reads in the messages. TEACHER_SEED seeds its mistakes, TEACHER_MISTAKES is their probability.
"""

import json
import os
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

from trainer.tiny.shells import FINISHED, SUBMIT, called
from trainer.tiny.world import Example, draw_example

TASKS = Path(__file__).parents[1] / "tasksets" / "tiny-train"
MISTAKES = float(os.environ.get("TEACHER_MISTAKES", "0.25"))
_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_random = random.Random(os.environ.get("TEACHER_SEED"))


def reply(prompt: Any) -> str:
    """What comes next: `prompt` has tools and messages, as `tap scripted` gives it.

    Raises LookupError for tools or a task that it does not know.
    """
    if not prompt.tools:  # a side call: a title, say
        return FINISHED
    example, done = _so_far(prompt)
    wrong = [command for command in example.wrong if command != example.look]
    if example.look is not None and example.look not in done:
        return called(prompt.tools, example.look)
    if example.right not in done:
        erred = any(command in done for command in wrong)
        errs = not erred and _random.random() < MISTAKES
        return called(prompt.tools, _random.choice(wrong) if errs else example.right)
    asked = any(SUBMIT in text for role, text in prompt.messages if role != "assistant")
    return called(prompt.tools, SUBMIT) if asked else FINISHED


def done(prompt: Any) -> list[str]:
    """The commands that were run for the task of `prompt` so far; raises LookupError for one that it does not know."""
    return _so_far(prompt)[1]


@cache
def examples() -> dict[str, Example]:
    """The training tasks by what they ask, drawn again as they were when their folders were written."""
    found = {}
    for folder in sorted(TASKS.iterdir()):
        family, _, number = folder.name.rpartition("-")
        name = family.replace("-", "_")
        example = draw_example(name, random.Random(f"{name} {number}"))
        found[example.prompt] = example
    return found


def _so_far(prompt: Any) -> tuple[Example, list[str]]:
    """The task, and the commands that were run for it."""
    example, since = _task([(role, text) for role, text in prompt.messages])
    spoken = [text for role, text in prompt.messages[since:] if role == "assistant"]
    return example, [command for text in spoken for command in _commands(text)]


def _task(messages: list[tuple[str, str]]) -> tuple[Example, int]:
    """The task that the latest user message with one asks, and where in `messages` that is."""
    for at in reversed(range(len(messages))):
        role, text = messages[at]
        asked = [prompt for prompt in examples() if prompt in text] if role == "user" else []
        if asked:  # one may begin like another: the whole one is the longest
            return examples()[max(asked, key=len)], at
    raise LookupError(f"no message asks a task of {TASKS.name}: {messages[-1][1][-200:]!r}")


def _commands(text: str) -> list[str]:
    """The commands that an assistant message runs."""
    found: list[str] = []
    for match in _CALL.findall(text):
        arguments = json.loads(match)["arguments"]
        found += arguments.get("commands") or [arguments["command"]]
    return found
