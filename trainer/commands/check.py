"""`trainer check`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from trainer.commands import planning
from trainer.commands.common import console, plain_errors
from trainer.tasks import Score, Task, TaskError, load_tasks
from trainer.tasks.sandbox import Sandbox


def check(
    tasks: Annotated[Path, typer.Argument(help="A folder of tasks, plain ones or in Harbor's format.")],
    only: planning.TaskOption = None,
    sandbox: planning.SandboxOption = "auto",
) -> None:
    """Try the tasks' own tests: an untouched workspace must not be solved, the author's solution must be.

    A task that nobody can fail teaches nothing, one that nobody can solve neither.

    \b
        trainer check trainer/tasksets/shell
    """
    with plain_errors():
        box = planning.find_sandbox(sandbox)
        table = Table(title=f"Tasks of {tasks}", title_justify="left")
        for column in ("task", "untouched", "solved by its author", ""):
            table.add_column(column)
        faults = 0
        for task in load_tasks(tasks):
            if only and task.name not in only:
                continue
            untouched, solved, fault = try_out(task, box)
            faults += bool(fault)
            table.add_row(task.name, untouched, solved, fault, style="red" if fault else None)
        console.print(table)
        if faults:
            raise ValueError(f"{faults} tasks are faulty")


def try_out(task: Task, sandbox: Sandbox | None) -> tuple[str, str, str]:
    """What its test says of an untouched workspace, of its author's solution, and what is wrong with that."""
    try:
        untouched = _attempt(task, sandbox, solve=False)
        solved = _attempt(task, sandbox, solve=True)
    except TaskError as error:
        return "-", "-", str(error).splitlines()[0]
    assert untouched is not None
    fault = ""
    if untouched.reward is None:
        fault = f"its test cannot tell: {(untouched.log.strip().splitlines() or ['?'])[-1]}"
    elif untouched.reward > 0:
        fault = "is solved without doing anything"
    elif solved is not None and not (solved.reward or 0) > 0:
        fault = f"its author's solution fails: {(solved.log.strip().splitlines() or ['?'])[-1]}"
    return _shown(untouched), "no solution given" if solved is None else _shown(solved), fault


def _attempt(task: Task, sandbox: Sandbox | None, *, solve: bool) -> Score | None:
    with tempfile.TemporaryDirectory(prefix="check-") as scratch:
        workspace = Path(scratch) / "workspace"
        task.prepare(workspace, sandbox)
        if solve and not task.solve(workspace, sandbox):
            return None
        return task.verify(workspace, sandbox)


def _shown(score: Score) -> str:
    return "?" if score.reward is None else f"{score.reward:g}"
