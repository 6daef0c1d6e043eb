"""Task sets: a folder of tasks, each in the plain format (`folder.py`) or in Harbor's (`harbor.py`)."""

from __future__ import annotations

from pathlib import Path

from trainer.tasks.folder import PROMPT, FolderTask
from trainer.tasks.harbor import CONFIG, HarborTask
from trainer.tasks.task import Score, Task, TaskError

__all__ = ["FolderTask", "HarborTask", "Score", "Task", "TaskError", "load_task", "load_tasks"]


def load_tasks(path: str | Path) -> list[Task]:
    """All tasks of the set at `path`, sorted by name; TaskError if there is none or one is incomplete."""
    root = Path(path).resolve()
    if not root.is_dir():
        raise TaskError(f"{root}: not a folder of tasks")
    if (root / PROMPT).exists() or (root / CONFIG).exists():
        raise TaskError(f"{root}: is a task itself; name the folder that holds it")
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and entry.name[0] not in "._")
    if not folders:
        raise TaskError(f"{root}: holds no task folders")
    return [load_task(folder) for folder in folders]


def load_task(folder: Path) -> Task:
    """The task in `folder`; TaskError if it is incomplete."""
    folder = folder.resolve()
    return HarborTask.load(folder) if (folder / CONFIG).is_file() else FolderTask.load(folder)
