"""Where a training run's figures are watched: the integrations of transformers, which TRL's trainers report through.

GRPO here makes a trainer of TRL's for every update (:mod:`trainer.grpo`). Each of those would begin and end a report of
its own, at step 1 for ever. So the callbacks are called from outside, as a trainer would: one report for the whole run,
whose global step is the weight version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch comes with it
    from trainer.grpo import Learner

PROJECT = "harnesstap"

Report = Callable[[int, Mapping[str, float]], None]
"""Takes a global step and the figures of it, by name."""


def nowhere(_step: int, _figures: Mapping[str, float]) -> None:
    """The Report of a run that is not watched."""


def check(where: str) -> None:
    """Raise ValueError for a place that is unknown or not installed, before a model is loaded for nothing."""
    _callbacks(where)


@contextmanager
def reporting(where: str, directory: Path, learner: Learner) -> Iterator[Report]:
    """Report the run in `directory` to `where`: none, tensorboard, trackio, wandb, ..., or all that are installed.

    A run that goes on after a restart goes on in the same report. TensorBoard's files are in `directory`/tensorboard;
    beside that, each integration's own environment variables hold (TRACKIO_DIR, WANDB_MODE, ...).

    Raises ValueError as :func:`check` does.
    """
    callbacks = _callbacks(where)
    if not callbacks:
        yield nowhere
        return
    from transformers import TrainerControl, TrainerState, TrainingArguments

    name = _name(directory)
    _go_on(callbacks, directory, name)
    settings, model = learner.settings, learner.policy.model
    arguments = TrainingArguments(
        output_dir=str(directory),
        run_name=name,
        project=PROJECT,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        gradient_checkpointing=settings.gradient_checkpointing,
        bf16=learner.bf16,
        seed=settings.seed,
        use_cpu=model.device.type == "cpu",
        report_to=where,
    )
    state, control = TrainerState(), TrainerControl()
    for callback in callbacks:
        callback.on_train_begin(arguments, state, control, model=model)

    def report(step: int, figures: Mapping[str, float]) -> None:
        state.global_step = step
        for callback in callbacks:
            callback.on_log(arguments, state, control, model=model, logs=dict(figures))

    try:
        yield report
    finally:
        for callback in callbacks:
            callback.on_train_end(arguments, state, control, model=model)


def _callbacks(where: str) -> list[Any]:
    from transformers.integrations import get_reporting_integration_callbacks

    try:
        return [make() for make in get_reporting_integration_callbacks(where)]
    except ValueError as unknown:
        raise ValueError(f"cannot report to {where!r}: {unknown}") from unknown
    except (RuntimeError, ImportError) as missing:
        raise ValueError(f"cannot report to {where}: {missing}") from missing


def _go_on(callbacks: list[Any], directory: Path, name: str) -> None:
    """Have each go on with the report of this run, where it has one: Trackio does by the run's name alone."""
    from transformers.integrations import TensorBoardCallback, WandbCallback

    for callback in callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:
            callback.logging_dir = str(directory / "tensorboard")
        if isinstance(callback, WandbCallback):
            for variable, value in (("PROJECT", PROJECT), ("RUN_ID", name), ("RESUME", "allow")):
                os.environ.setdefault(f"WANDB_{variable}", value)


def _name(directory: Path) -> str:
    """The run's own name, given once: another run that is put into a directory of the same name is another report."""
    path = directory / "report-name"
    if not path.is_file():
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{directory.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}\n")
    return path.read_text().strip()
