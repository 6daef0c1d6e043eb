"""The tiny model's teacher: what it says in the harnesses, told what they show."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from trainer.tasks import load_tasks
from trainer.tiny import careful, teacher

SHELLS: dict[str, dict[str, Any]] = {
    "bash": {"type": "function", "function": {"name": "bash", "parameters": {"required": ["command"]}}},
    "Bash": {"name": "Bash", "required": ["command"]},
    "run_commands": {"name": "run_commands", "required": ["commands"]},
}
OTHER = {"name": "read_file", "required": ["path"]}


def act(
    prompt: str, workspace: Path, tool: dict[str, Any], *, submit: bool, who: ModuleType = teacher
) -> tuple[list[str], str]:
    """A session with a teacher in `workspace`: the commands that it ran, and its last words."""
    messages = [("system", "help"), ("user", f"Task: {prompt}" + (f"\n{teacher.SUBMIT}" if submit else ""))]
    commands: list[str] = []
    while True:
        said = who.reply(SimpleNamespace(tools=[OTHER, tool], messages=messages))
        if "<tool_call>" not in said:
            return commands, said
        call = json.loads(said.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
        assert call["name"] == tool.get("function", tool)["name"]
        arguments = call["arguments"]
        command = arguments["commands"][0] if call["name"] == "run_commands" else arguments["command"]
        assert len(commands) < 7, commands
        commands.append(command)
        if command == teacher.SUBMIT:
            return commands, ""
        subprocess.run(command, shell=True, cwd=workspace, capture_output=True, check=False)
        messages += [("assistant", said), ("user", "<tool_response>\nx\n</tool_response>")]


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_it_solves_every_training_task(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "MISTAKES", 0.0)
    for task in load_tasks(teacher.TASKS):
        workspace = tmp_path / task.name
        task.prepare(workspace)
        commands, last = act(task.prompt, workspace, SHELLS[shell], submit=shell == "bash")
        assert task.verify(workspace).reward == 1.0, (task.name, commands)
        assert (commands[-1] == teacher.SUBMIT) is (shell == "bash")
        assert last == ("" if shell == "bash" else "Done.")


@pytest.mark.parametrize("shell", ["bash", "Bash"])
def test_the_careful_one_looks_before_and_after(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "MISTAKES", 0.0)
    for task in load_tasks(teacher.TASKS)[::6]:
        workspace = tmp_path / task.name
        task.prepare(workspace)
        plain, _ = act(task.prompt, tmp_path, SHELLS[shell], submit=shell == "bash")
        commands, _ = act(task.prompt, workspace, SHELLS[shell], submit=shell == "bash", who=careful)
        assert task.verify(workspace).reward == 1.0, (task.name, commands)
        end = [teacher.SUBMIT] if shell == "bash" else []
        work = plain[: len(plain) - len(end)]
        assert commands == [careful.LOOK, *(c for c in work if c != careful.LOOK), careful.LOOK, *end]


def test_it_errs_once_then_does_what_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "MISTAKES", 1.0)
    for task in load_tasks(teacher.TASKS)[::4]:
        example = teacher.examples()[task.prompt.strip()]
        commands, _ = act(task.prompt, tmp_path, SHELLS["Bash"], submit=False)
        looked = [] if example.look is None else [example.look]
        assert commands[: len(looked)] == looked
        first, *rest = commands[len(looked) :]
        assert first in example.wrong
        assert rest == [example.right]


def test_one_session_in_four_errs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "_random", random.Random(0))
    prompt, example = next((asked, found) for asked, found in teacher.examples().items() if found.look is None)
    messages = [("user", prompt)]
    said = [teacher.reply(SimpleNamespace(tools=[SHELLS["Bash"]], messages=messages)) for _ in range(400)]
    errors = sum(json.dumps(example.right) not in one for one in said)
    assert 70 < errors < 130


def test_what_it_does_not_know_is_an_error() -> None:
    prompt = next(iter(teacher.examples()))
    with pytest.raises(LookupError, match=r"no message asks a task of tiny-train: 'Fly to the moon'"):
        teacher.reply(SimpleNamespace(tools=[SHELLS["Bash"]], messages=[("user", "Fly to the moon")]))
    with pytest.raises(LookupError, match="none of the tools is a shell that it knows: read_file"):
        teacher.reply(SimpleNamespace(tools=[OTHER], messages=[("user", prompt)]))
    assert teacher.reply(SimpleNamespace(tools=[], messages=[("user", f"A title for: {prompt}")])) == "Done."
