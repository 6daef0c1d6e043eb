"""What a directory of `trainer run` says of itself: which experiment it is, and what came of it.

run.json says which recipe it is, with which seed, and what its evaluations measure; evaluation.json, once it is
finished, which runs of its record are the evaluations before and after. Where run.json names a baseline, the one before
is in the record of that directory: experiments on one model need measure it only once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay.reader import Reader
from replay.store import Store
from trainer.evaluation import Run
from trainer.recipe import Recipe, evaluation_name
from trainer.tasks import load_tasks

_RUN, _EVALUATION, _RECORD = "run.json", "evaluation.json", "harnesstap.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One directory: a recipe with a seed, and its evaluations."""

    recipe: str
    seed: int
    directory: Path
    before: Run
    after: Run

    @classmethod
    def load(cls, directory: Path) -> Finished:
        """Raises FileNotFoundError for a directory that no experiment was run in, ValueError for an unfinished one."""
        if not (directory / _RUN).is_file():
            raise FileNotFoundError(f"{directory} is no directory of `trainer run`: it has no {_RUN}")
        if not (directory / _EVALUATION).is_file():
            raise ValueError(f"{directory} has no {_EVALUATION}: it is unfinished, or its recipe evaluates nothing")
        about = json.loads((directory / _RUN).read_text())
        names = list(json.loads((directory / _EVALUATION).read_text()))
        first = Path(about.get("baseline") or directory)
        before, after = _evaluation(first, names[0]), _evaluation(directory, names[-1])
        return cls(recipe=about["recipe"], seed=about["seed"], directory=directory, before=before, after=after)


def begin(directory: Path, plan: Recipe, baseline: Path | None = None) -> Run | None:
    """Note what runs in `directory`; the evaluation before it where `baseline`, another such directory, has made it.

    Raises ValueError where something else was begun in `directory`, and where `baseline` measured something else or has
    not finished its first evaluation; FileNotFoundError where it is no such directory.
    """
    found = None if baseline is None else _before(baseline, plan)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _RUN
    mine = {"recipe": plan.name, "seed": plan.seed, "measures": _measures(plan)}
    mine |= {} if baseline is None else {"baseline": str(baseline.resolve())}
    there = json.loads(path.read_text()) if path.is_file() else mine
    if there["recipe"] != plan.name or there["seed"] != plan.seed:
        raise ValueError(
            f"{directory} has a run of recipe {there['recipe']} with seed {there['seed']}, not of {plan.name} with "
            f"{plan.seed}: name another directory with --out"
        )
    if there.get("baseline") != mine.get("baseline"):
        raise ValueError(f"the run in {directory} began with the baseline {there.get('baseline')}: go on with that")
    path.write_text(json.dumps(mine) + "\n")
    return found


def _measures(plan: Recipe) -> dict[str, Any]:
    """What an evaluation before training depends on, but for chance."""
    chosen = plan.evaluation
    return {
        "model": plan.model,
        "tasks": None if chosen.tasks is None else str(chosen.tasks.resolve()),
        "harnesses": list(chosen.harnesses or plan.rollouts.harnesses),
        "samples": chosen.samples,
        "max_tokens": plan.rollouts.max_tokens,
        "max_turns": plan.rollouts.max_turns,
        "max_model_len": plan.rollouts.max_model_len,
    }


def _before(baseline: Path, plan: Recipe) -> Run:
    if not (baseline / _RUN).is_file():
        raise FileNotFoundError(f"{baseline} is no directory of `trainer run`: it has no {_RUN}")
    about = json.loads((baseline / _RUN).read_text())
    if "measures" not in about:
        raise ValueError(f"{baseline} does not say what it measures: an earlier version ran it")
    mine = _measures(plan)
    other = {name: value for name, value in about["measures"].items() if value != mine.get(name)}
    if other:
        told = ", ".join(f"{name} is {value} there, {mine[name]} here" for name, value in other.items())
        raise ValueError(f"{baseline} is no baseline for this recipe: {told}")
    if about.get("baseline"):
        raise ValueError(f"{baseline} has its own baseline in {about['baseline']}: name that")
    if plan.evaluation.tasks is None:
        raise ValueError("a recipe that evaluates nothing needs no baseline")
    found = _evaluation(baseline, evaluation_name(about["recipe"], 0))
    wanted = len(load_tasks(plan.evaluation.tasks)) * len(mine["harnesses"]) * plan.evaluation.samples
    if len(found.sessions) != wanted:
        raise ValueError(f"{baseline} has made {len(found.sessions)} of the {wanted} sessions of its first evaluation")
    return found


def _evaluation(directory: Path, name: str) -> Run:
    with Store.open(f"sqlite:///{directory / _RECORD}", create=False) as store:
        return Run.load(Reader(store), name)


def conclude(directory: Path, evaluations: Sequence[Run]) -> None:
    """Note the figures of the evaluations of a run that is finished, in their order."""
    figures = {one.name: [score.document() for score in one.scores()] for one in evaluations}
    (directory / _EVALUATION).write_text(json.dumps(figures, indent=2) + "\n")
