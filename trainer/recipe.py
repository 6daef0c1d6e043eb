"""An experiment as a TOML file: what is trained on which tasks in which harnesses, and how it is measured."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.advantages import Scale
from trainer.plan import Assignment
from trainer.push import WayName

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
    next step's tasks while this one is trained on, so that sessions are one version old. `preload` forks the sessions
    of the harnesses that can be preloaded; the others start as always, and none of them in a sandbox. `max_tokens` caps
    one reply; `max_model_len` is prompt and reply, where vLLM is started here (None: see trainer.local). With
    `reproducible` every call's sampling follows from the recipe's seed, the session and the call's place in it, in
    evaluations too: sessions then differ between two runs only by what their commands and the batches' rounding do.
    On a GPU vLLM draws seeded tokens one request after the other, which costs it speed.
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
    max_model_len: Count | None = None
    rewards: Names = ()
    preload: bool = False
    reproducible: bool = False
    ahead: Annotated[int, Field(ge=0)] = 0


class Training(_Section):
    """[training]: GRPO as `trainer grpo` does it.

    `push` is how weights come into vLLM, as its --push-by; `report_to` where figures are watched, as its --report-to.
    """

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
    push: WayName | None = None
    report_to: str = "none"
    seed: int = 0

    @model_validator(mode="after")
    def _adapters_to_push(self) -> Self:
        if self.push == "lora" and self.lora_rank is None:
            raise ValueError('push = "lora" loads adapters alone, and all weights are trained: give lora_rank, too')
        return self


class Teacher(_Section):
    """[teacher]: whose sessions are imitated. Exactly one of `model`, `engine` and `script` says who answers.

    A `model` is served by a vLLM of ours while it teaches, an `engine` is the address of one that runs already, and a
    `script` a Python file for `tap scripted`, with the student's tokenizer; it finds the seed in TEACHER_SEED. Each
    task is tried up to `attempts` times in each harness, until it is solved.
    """

    model: str | None = None
    engine: str | None = None
    script: Folder | None = None
    attempts: Count = 3

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("model", "engine", "script") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"one of model, engine and script says who teaches; given: {', '.join(given) or 'none'}")
        return self


class Imitation(_Section):
    """[sft]: supervised learning on the teacher's sessions, as `trainer sft` does it."""

    epochs: float = 2.0
    learning_rate: float = 1e-5
    batch_size: Count = 8
    micro_batch: Count = 1
    max_tokens: Count | None = None
    gradient_checkpointing: bool = True
    lora_rank: Count | None = None
    rerender: Literal["auto", "always", "never"] = "auto"
    seed: int = 0


_GROUPS = ("assign", "groups", "group_size", "rewards", "ahead")
"""What in [rollouts] is said of groups, which a teacher's sessions do not form."""


class Evaluation(_Section):
    """[evaluation]: before the first step, after every `every` steps, and after the last; 0: only those two."""

    tasks: Folder | None = None
    harnesses: Names = ()
    samples: Count = 1
    every: Annotated[int, Field(ge=0)] = 0


class Recipe(_Section):
    """A whole experiment. `model` is a directory or a Hugging Face id; paths are relative to the recipe's folder.

    It is learnt by GRPO ([training]), or from a teacher ([teacher] and [sft]).
    """

    name: str
    """The file's own, unless it says otherwise."""
    model: str
    rollouts: Rollouts
    training: Training = Training()
    teacher: Teacher | None = None
    sft: Imitation | None = None
    evaluation: Evaluation = Evaluation()

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.sft is None and self.teacher is None:
            return self
        if self.sft is None or self.teacher is None:
            raise ValueError("[teacher] and [sft] go together: a teacher is for [sft], and [sft] learns from one")
        if "training" in self.model_fields_set:
            raise ValueError(
                "[training] is GRPO, [teacher] and [sft] learn from a teacher: a recipe has one of the two"
            )
        if said := [name for name in _GROUPS if name in self.rollouts.model_fields_set]:
            raise ValueError(f"[rollouts] {', '.join(said)}: a teacher's sessions form no groups")
        return self

    @property
    def harnesses(self) -> tuple[str, ...]:
        """All that something is rolled out with."""
        return tuple(dict.fromkeys((*self.rollouts.harnesses, *self.evaluation.harnesses)))

    @property
    def updates(self) -> int:
        """How many times new weights are served; what a teacher taught is served once."""
        return self.training.steps if self.sft is None else 1

    @property
    def seed(self) -> int:
        """Of the order of tasks or examples, and of a scripted teacher."""
        return self.training.seed if self.sft is None else self.sft.seed

    def evaluation_name(self, step: int) -> str:
        """The evaluation of the weights after `step` updates, as a run of the record."""
        return evaluation_name(self.name, step)

    def seeded(self, seed: int) -> Recipe:
        """This with another seed."""
        if self.sft is not None:
            return self.model_copy(update={"sft": self.sft.model_copy(update={"seed": seed})})
        return self.model_copy(update={"training": self.training.model_copy(update={"seed": seed})})

    def lasting(self, steps: int) -> Recipe:
        """This with another number of steps. Raises RecipeError where there are none."""
        if self.sft is not None:
            raise RecipeError(f"recipe {self.name} has no steps: [sft] epochs say how long it learns")
        return self.model_copy(update={"training": self.training.model_copy(update={"steps": steps})})

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
            raise RecipeError(f"{path}: " + "; ".join(map(_told, error.errors()))) from error
        return recipe


def _told(fault: Any) -> str:
    """One of pydantic's errors in words; one of ours names what is wrong itself."""
    where = ".".join(map(str, fault["loc"]))
    if fault["type"] == "value_error":
        return (f"{where}: " if where else "") + str(fault["ctx"]["error"])
    return f"{where}: {fault['msg']} ({fault['input']!r})"


def _at(folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """`found` with its paths taken from `folder`."""
    placed = dict(found)
    for section, key in (("rollouts", "tasks"), ("evaluation", "tasks"), ("teacher", "script")):
        table: Any = found.get(section)
        if isinstance(table, dict) and isinstance(table.get(key), str):
            placed[section] = {**table, key: folder / table[key]}
    if isinstance(teacher := placed.get("teacher"), dict):
        placed["teacher"] = _local(folder, teacher)
    return _local(folder, placed)


def _local(folder: Path, table: dict[str, Any]) -> dict[str, Any]:
    """`table` with a `model` that is a path taken from `folder`."""
    model = table.get("model")
    if isinstance(model, str) and model.startswith("."):
        return {**table, "model": str((folder / model).resolve())}
    return table


def evaluation_name(recipe: str, step: int) -> str:
    """See `Recipe.evaluation_name`."""
    return f"eval-{recipe}-{step}"
