"""What mini-swe-agent sends, read from its own installed package: its prompt is not kept in this repository.

The tiny model is trained on these messages, and sampled through them in `evaluate.py`; the demo runs the real
program.
"""

import ast
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml
from jinja2 import Environment, StrictUndefined, Template

from trainer.tiny.shells import SUBMIT

Message = dict[str, Any]


@dataclass(frozen=True)
class Output:
    """What a command printed, its standard error after its output; `errors` is the former alone."""

    text: str
    errors: str
    returncode: int


class Harness(Protocol):
    """How a harness words a session."""

    @property
    def name(self) -> str:
        """As the table of harnesses has it."""

    @property
    def shell(self) -> str:
        """Its tool that runs commands."""

    @property
    def tools(self) -> list[dict[str, Any]]:
        """As a request has them."""

    def draw_opening(self, task: str, rng: random.Random) -> list[Message]:
        """The messages a session begins with, on a machine that is made up."""

    def call(self, command: str) -> Message:
        """The assistant message that runs `command`."""

    def result(self, command: str, output: Output) -> Message:
        """The tool message that tells what `command` printed."""

    def finish(self) -> Message:
        """The assistant message that ends a session."""


# What `uname` says differs between machines and stands inside the prompt: training draws from these.
_SYSTEMS = (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64"))
_FLAVOURS = ("-generic", "-amd64", "-aws", "-azure", "-cloud", "+", ".el9", "-microsoft-standard-WSL2", "")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class MiniSweAgent:
    """The templates and the tool of an installed mini-swe-agent."""

    system: Template
    instance: Template
    observation: Template
    format_error: Template
    tools: list[dict[str, Any]]
    name: str = "mini-swe-agent"
    shell: str = "bash"

    @classmethod
    def load(cls, package: Path | None = None) -> "MiniSweAgent":
        """Read the folder `minisweagent` at `package`; None looks for it here and beside `mini`."""
        root = package or _find_package()
        config = yaml.safe_load((root / "config" / "mini.yaml").read_text())
        source = ast.parse((root / "models" / "utils" / "actions_toolcall.py").read_text())
        tool = next(
            ast.literal_eval(node.value)
            for node in source.body
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "BASH_TOOL"
        )

        template = Environment(undefined=StrictUndefined).from_string
        return cls(
            system=template(config["agent"]["system_template"]),
            instance=template(config["agent"]["instance_template"]),
            observation=template(config["model"]["observation_template"]),
            format_error=template(config["model"]["format_error_template"]),
            tools=[tool],
        )

    def opening(self, task: str, uname: dict[str, str]) -> list[Message]:
        """The two messages a session begins with; `uname` has system, release, version and machine."""
        return [
            {"role": "system", "content": self.system.render()},
            {"role": "user", "content": self.instance.render(task=task, **uname)},
        ]

    def draw_opening(self, task: str, rng: random.Random) -> list[Message]:
        """As `opening`, with a made-up uname."""
        return self.opening(task, random_uname(rng))

    def call(self, command: str) -> Message:
        """The assistant message that runs `command`."""
        return call(command)

    def finish(self) -> Message:
        """The assistant message that submits."""
        return call(SUBMIT)

    def result(self, command: str, output: Output) -> Message:
        """The tool message for a command that printed `output`; it does not repeat the command."""
        shown = {"output": output.text, "returncode": output.returncode, "exception_info": ""}
        return {"role": "tool", "tool_call_id": "call_0", "content": self.observation.render(output=shown)}

    def complaint(self) -> Message:
        """The user message that answers a reply without a tool call."""
        error = "No tool calls found in the response. Every response MUST include at least one tool call."
        content = self.format_error.render(error=error, finish_reason="stop", has_tool_calls=False, actions=[])
        return {"role": "user", "content": content}


def call(command: str) -> Message:
    """The assistant message that runs `command`."""
    function = {"name": "bash", "arguments": {"command": command}}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "id": "call_0", "function": function}],
    }


def run(command: str, workspace: Path) -> Output:
    """What `command` prints in `workspace`."""
    done = subprocess.run(
        command, shell=True, cwd=workspace, text=True, errors="replace", timeout=30,
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    return Output(done.stdout + done.stderr, done.stderr, done.returncode)


def random_uname(rng: random.Random) -> dict[str, str]:
    """Made-up but likely `uname` fields, so that the model does not depend on those of one machine."""
    system, machine = rng.choice(_SYSTEMS)
    clock = f"{rng.randint(10, 23)}:{rng.randint(10, 59)}:{rng.randint(10, 59)}"
    year, month, day = rng.randint(2022, 2027), rng.choice(_MONTHS), rng.randint(1, 28)
    when = f"{rng.choice(_DAYS)} {month} {day} {clock} UTC {year}"
    if system == "Darwin":
        release = f"{rng.randint(21, 25)}.{rng.randint(0, 6)}.0"
        build = f"root:xnu-{rng.randint(8000, 12000)}.{rng.randint(1, 141)}.{rng.randint(1, 9)}"
        version = f"Darwin Kernel Version {release}: {when}; {build}/RELEASE_ARM64_T{rng.randint(6000, 8132)}"
    else:
        kernel = f"{rng.randint(4, 6)}.{rng.randint(0, 19)}.{rng.randint(0, 199)}"
        number = rng.randint(1, 130)
        release = kernel + rng.choice((f"-{number}", "")) + rng.choice(_FLAVOURS)
        debian = f"#{number} SMP PREEMPT_DYNAMIC Debian {kernel}-{number} ({year}-{day:02d}-{day:02d})"
        plain = rng.choice(("", " SMP", " SMP PREEMPT", " SMP PREEMPT_DYNAMIC"))
        kinds = (f"#{number}-Ubuntu{plain} {when}", debian, f"#{number}{plain} {when}", f"#1{plain}")
        version = rng.choice(kinds)
    return {"system": system, "release": release, "version": version, "machine": machine}


def _find_package() -> Path:
    """The folder `minisweagent` of this environment, or of the one that `mini` on PATH belongs to."""
    roots = [Path(entry) for entry in sys.path if entry]
    if command := shutil.which("mini"):
        roots += sorted(Path(command).resolve().parent.parent.glob("lib/python3*/site-packages"))
    for root in roots:
        if (root / "minisweagent" / "config" / "mini.yaml").is_file():
            return root / "minisweagent"
    raise FileNotFoundError(
        "mini-swe-agent is not installed here and `mini` is not on PATH; name its folder explicitly"
    )
