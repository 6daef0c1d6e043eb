"""A harness as one recorded session of it shows it: its prompt with gaps for what varies, and how it tells results.

No harness's prompt is kept in this repository. Each is run once on known commands (`watch.py`), and what it then sent
is the form in which made-up sessions are written.
"""

import json
import random
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.tiny import probe
from trainer.tiny.harness import Message, Output
from trainer.tiny.shells import FINISHED, SHELLS, arguments_of

_TASK, _FOLDER, _ROOT, _OUTPUT, _QUOTED, _COMMAND, _STATUS = (f"\x01{name}\x01" for name in "tfroqcs")
_KINDS = ("shown", "silent", "failed", "failed_listed", "failed_silent")
_PRINTED = (probe.SHOWN, "", probe.COMPLAINT, probe.LISTED, "")
_DAYS = (re.compile(r"\b20\d\d-\d\d-\d\d\b"), re.compile(r"\b\d{1,2}/\d{1,2}/20\d\d\b"))
_PLACES = ("/root", "/home/ann", "/home/ben/code/agents", "/data", "/tmp/x", "/srv/rl/project", "/Users/kim/work")
_PARTS = ("runs", "rollouts", "sessions", "learn-0", "eval-tiny-0", "tiny-3", "try", "results", "tiny-four-1", "out")


@dataclass(frozen=True)
class Watched:
    """What a harness sends: `opening` and `results` are texts with gaps, `tools` as a request has them.

    `shell` is the tool that runs commands. `results` has what the harness says of a command that printed something,
    that printed nothing, that failed with a complaint, failed after printing, and failed silently.
    """

    name: str
    opening: list[Message]
    tools: list[dict[str, Any]]
    shell: str
    results: dict[str, str]

    @classmethod
    def of(cls, name: str, messages: list[Message], tools: list[dict[str, Any]], folder: Path, root: Path) -> "Watched":
        """From the `messages` of a probing session in `folder` by a harness installed under `root`.

        Raises ValueError where the session is not what `probe.py` asks for.
        """
        first = next(at for at, message in enumerate(messages) if message["role"] == "assistant")
        told = [message["content"] for message in messages if message["role"] == "tool"]
        if len(told) < len(_KINDS):
            raise ValueError(f"{name} answered {len(told)} of {len(_KINDS)} probes")
        opening = [{**message, "content": _cut(message["content"], folder, root)} for message in messages[:first]]
        if sum(message["content"].count(_TASK) for message in opening) != 1:
            raise ValueError(f"the prompt of {name} does not have the task once")
        return cls(
            name=name,
            opening=opening,
            tools=tools,
            shell=next(tool["name"] for tool in tools if tool["name"] in SHELLS),
            results={
                kind: _gaps(text, printed, command)
                for kind, text, printed, command in zip(_KINDS, told, _PRINTED, probe.COMMANDS, strict=False)
            },
        )

    @classmethod
    def load(cls, path: Path) -> "Watched":
        """Read what `save` wrote."""
        return cls(**json.loads(path.read_text()))

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    def draw_opening(self, task: str, rng: random.Random) -> list[Message]:
        """The messages a session begins with, on a machine and at a day that are made up."""
        folder = "/".join((rng.choice(_PLACES), *rng.sample(_PARTS, rng.randint(1, 4)), "workspace"))
        filled = {_TASK: task, _FOLDER: folder, _ROOT: f"{rng.choice(_PLACES)}/.harness"}
        year, month, day = rng.randint(2024, 2028), rng.randint(1, 12), rng.randint(1, 28)
        opening = []
        for message in self.opening:
            text = message["content"]
            for gap, what in filled.items():
                text = text.replace(gap, what)
            text = _DAYS[0].sub(f"{year}-{month:02d}-{day:02d}", text)
            opening.append({**message, "content": _DAYS[1].sub(f"{month}/{day}/{year}", text)})
        return opening

    def call(self, command: str) -> Message:
        """The assistant message that runs `command`."""
        function = {"name": self.shell, "arguments": arguments_of(self.shell, command)}
        calls = [{"type": "function", "id": "call_0", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    def result(self, command: str, output: Output) -> Message:
        """The tool message that tells what `command` printed."""
        if output.returncode == 0:
            kind = "shown" if output.text else "silent"
        elif output.errors:
            kind = "failed"
        else:
            kind = "failed_listed" if output.text else "failed_silent"
        text = self.results[kind]
        filled = {_STATUS: str(output.returncode), _COMMAND: _quoted(command)}
        for gap, what in (filled | {_QUOTED: _quoted(output.text), _OUTPUT: output.text}).items():
            text = text.replace(gap, what)
        return {"role": "tool", "tool_call_id": "call_0", "content": text}

    def finish(self) -> Message:
        """The assistant message that ends a session."""
        return {"role": "assistant", "content": FINISHED}


def _cut(text: str, folder: Path, root: Path) -> str:
    for what, gap in ((str(folder), _FOLDER), (str(root), _ROOT), (probe.PROMPT, _TASK)):
        text = text.replace(what, gap)
    return text


def _gaps(text: str, printed: str, command: str) -> str:
    text = text.replace(_quoted(command), _COMMAND).replace("code 1", f"code {_STATUS}")
    if not printed:
        return text
    if printed in text:
        return text.replace(printed, _OUTPUT)
    if _quoted(printed) in text:
        return text.replace(_quoted(printed), _QUOTED)
    if printed.rstrip("\n") in text:  # shown without its last line feed: all output then is
        return text.replace(printed.rstrip("\n"), _OUTPUT)
    raise ValueError(f"{printed!r} is not in what the harness told of it: {text!r}")


def _quoted(text: str) -> str:
    """`text` inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
