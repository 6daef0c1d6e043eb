"""What all recipes have in common, however they train: harnesses that run on tasks, and evaluations of the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certs import harnesses as table
from replay.reader import Reader
from replay.store import Store
from trainer.evaluation import Run
from trainer.local import LocalStack
from trainer.plan import Budget, Outcome, Plan, Progress, Runner
from trainer.processes import ProcessFailed
from trainer.recipe import Recipe
from trainer.rollout import rollout
from trainer.tasks import Task, load_tasks
from trainer.tasks.sandbox import Sandbox


@dataclass(slots=True, kw_only=True)
class Lab:
    """`recipe` in `directory`, through `local`'s proxy and vLLM, onto `store`; harnesses are installed below `root`.

    `sandbox` holds what harnesses do, unless the recipe preloads them. `baseline` is the evaluation before training
    where it has been made already. `progress` hears of every session, `evaluated` of every evaluation.
    """

    recipe: Recipe
    directory: Path
    local: LocalStack
    store: Store
    root: Path
    sandbox: Sandbox | None = None
    baseline: Run | None = None
    progress: Progress = lambda *_: None
    evaluated: Callable[[Run], None] = lambda *_: None
    say: Callable[[str], None] = lambda _: None
    runners: dict[str, Runner] = field(init=False)

    def __post_init__(self) -> None:
        self.runners = {
            name: Runner(spec, table.find(spec, self.root))
            for name in self.recipe.harnesses
            for spec in [table.get(name)]
        }

    def plan(self, run: str, tasks: Sequence[Task], names: Sequence[str], **more: Any) -> Plan:
        """`tasks` in the harnesses `names`, as [rollouts] has it; `more` are fields of the plan, group_size at least.

        The proxy is for the caller to choose.
        """
        chosen = self.recipe.rollouts
        return Plan(
            run=run,
            tasks=tuple(tasks),
            runners=tuple(self.runners[name] for name in names),
            concurrency=chosen.concurrency,
            directory=self.directory / "sessions" / run,
            timeout=chosen.timeout,
            budget=Budget(turns=chosen.max_turns, tokens=chosen.max_session_tokens),
            sandbox=None if chosen.preload else self.sandbox,
            preload=chosen.preload,
            seed=self.recipe.seed if chosen.reproducible else None,
            **more,
        )

    async def roll_out(self, plan: Plan, local: LocalStack) -> list[Outcome]:
        """What is left of `plan`, through `local`'s proxy.

        Raises ProcessFailed when vLLM or the proxy ends meanwhile, and when no session could be scored.
        """
        outcomes = await local.during(rollout(local.through(plan), self.store, progress=self.progress))
        if outcomes and all(outcome.stage == "failed" for outcome in outcomes):
            log = outcomes[0].log or self.directory
            raise ProcessFailed(f"no session of {plan.run} could be scored\n{local.explain(log)}")
        return outcomes

    async def evaluate(self, step: int) -> None:
        """Measure the policy after `step` updates, where the recipe says on what."""
        chosen = self.recipe.evaluation
        if chosen.tasks is None:
            return
        if step == 0 and self.baseline is not None:
            self.evaluated(self.baseline)
            return
        name = self.recipe.evaluation_name(step)
        names = chosen.harnesses or self.recipe.rollouts.harnesses
        plan = self.plan(name, load_tasks(chosen.tasks), names, group_size=chosen.samples, train=False)
        await self.roll_out(plan, self.local)
        self.evaluated(Run.load(Reader(self.store), name))
