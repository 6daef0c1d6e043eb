"""The shipped tasks: none is solved by doing nothing, each by its author's solution."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.commands.check import try_out
from trainer.tasks import Task, load_tasks

SHIPPED = Path(__file__).resolve().parents[2] / "trainer" / "tasksets"


@pytest.mark.parametrize("task", load_tasks(SHIPPED / "shell"), ids=lambda task: task.name)
def test_a_shell_task_can_be_failed_and_solved(task: Task) -> None:
    assert try_out(task, None) == ("0", "1", "")


def test_there_are_enough() -> None:
    assert len(load_tasks(SHIPPED / "shell")) >= 30
