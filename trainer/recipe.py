"""An experiment as a TOML file: what is trained on which tasks in which harnesses, and how it is measured."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.advantages import Scale
from trainer.plan import Assignment

Count = Annotated[int, Field(ge=1)]
Folder = Annotated[Path, Field(strict=False)]
Names = Annotated[tuple[str, ...], Field(strict=False)]


class RecipeError(ValueError):
    """A recipe is not as it has to be; the message names the file, the section and the key."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Rollouts(_Section):
    """[rollouts]: `groups` groups a step, each one task with one harness, `group_size` sessions.

    `ahead` is how many steps' rollouts run before their weights are trained: 0 waits for every update, 1 rolls out the
    next step's tasks while this one is trained on, so that sessions are one version old.
    """

    tasks: Folder
    harnesses: Annotated[Names, Field(min_length=1)] = ("mini-swe-agent",)
    assign: Assignment = "rotate"
    groups: Count = 8
    group_size: Count = 8
    concurrency: Count = 4
    timeout: float = 300.0
    max_turns: Count | None = None
    max_session_tokens: Count | None = None
    max_tokens: Count = 512
    rewards: Names = ()
    preload: bool = False
    ahead: Annotated[int, Field(ge=0)] = 0


class Training(_Section):
    """[training]: GRPO as `trainer grpo` does it."""

    steps: Count = 10
    learning_rate: float = 1e-6
    loss: Literal["dapo", "cispo"] = "dapo"
    scale: Scale = "std"
    balance_sessions: bool = False
    max_lag: Annotated[int, Field(ge=0)] | None = 4
    max_tokens: Count | None = None
    token_budget: Count = 8192
    gradient_checkpointing: bool = True
    lora_rank: Count | None = None
    seed: int = 0


class Evaluation(_Section):
    """[evaluation]: before the first step, after every `every` steps, and after the last; 0: only those two."""

    tasks: Folder | None = None
    harnesses: Names = ()
    samples: Count = 1
    every: Annotated[int, Field(ge=0)] = 0


class Recipe(_Section):
    """A whole experiment. `model` is a directory or a Hugging Face id; paths are relative to the recipe's folder."""

    name: str
    """The file's own, unless it says otherwise."""
    model: str
    rollouts: Rollouts
    training: Training = Training()
    evaluation: Evaluation = Evaluation()

    @classmethod
    def load(cls, path: Path) -> Recipe:
        """Read `path`. Raises RecipeError, also for keys that mean nothing."""
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path}: {error}") from error
        try:
            recipe = cls(**{"name": path.stem, **_at(path.resolve().parent, found)})
        except ValidationError as error:
            told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']} ({one['input']!r})" for one in error.errors()]
            raise RecipeError(f"{path}: " + "; ".join(told)) from error
        return recipe


def _at(folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """`found` with its paths taken from `folder`."""
    placed = dict(found)
    for section in ("rollouts", "evaluation"):
        table = found.get(section)
        if isinstance(table, dict) and isinstance(table.get("tasks"), str):
            placed[section] = {**table, "tasks": folder / table["tasks"]}
    model = found.get("model")
    if isinstance(model, str) and model.startswith("."):
        placed["model"] = str((folder / model).resolve())
    return placed
