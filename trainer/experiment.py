"""A recipe, carried out: rollouts, updates, pushes, evaluations; and gone on with where it was stopped.

The tasks have one order, drawn once by the seed. Step k takes the next tasks of it, whatever happened before: a restart
goes on at its position and repeats no session that has ended. The record tells the rest: a run of rollouts under the
same name does only what is missing, and groups that were trained on are used up.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from certs import harnesses as table
from replay.reader import Reader
from replay.rewards import RewardFile
from replay.store import Store
from replay.writer import Recorder
from trainer.adapters import Lora
from trainer.advantages import NothingToTrain
from trainer.evaluation import Run
from trainer.grpo import Settings
from trainer.local import LocalStack
from trainer.plan import Budget, Outcome, Plan, Progress, Runner
from trainer.processes import ProcessFailed
from trainer.push import WeightServer, choose
from trainer.recipe import Recipe
from trainer.reporting import reporting
from trainer.rollout import rollout
from trainer.selection import Choice
from trainer.tasks import Task, load_tasks
from trainer.tasks.sandbox import Sandbox
from trainer.training import StepReport, TrainingRun


@dataclass(slots=True)
class Experiment:
    """`recipe` in `directory`, through `local`'s proxy and vLLM, onto `store`.

    `sandbox` holds what harnesses do. `progress` hears of every session, `reported` of every step (None: the step's
    groups had no contrast) and `evaluated` of every evaluation.
    """

    recipe: Recipe
    directory: Path
    local: LocalStack
    store: Store
    root: Path
    rewards: tuple[RewardFile, ...] = ()
    sandbox: Sandbox | None = None
    progress: Progress = lambda *_: None
    reported: Callable[[int, StepReport | None], None] = lambda *_: None
    evaluated: Callable[[Run], None] = lambda *_: None
    say: Callable[[str], None] = lambda _: None
    _runners: dict[str, Runner] = field(init=False)
    _order: list[Task] = field(init=False)

    def __post_init__(self) -> None:
        names = dict.fromkeys((*self.recipe.rollouts.harnesses, *self.recipe.evaluation.harnesses))
        self._runners = {
            name: Runner(spec, table.find(spec, self.root)) for name in names for spec in [table.get(name)]
        }
        self._order = load_tasks(self.recipe.rollouts.tasks)
        random.Random(self.recipe.training.seed).shuffle(self._order)

    def run(self) -> None:
        """All that is left of the recipe. Raises ProcessFailed when no session of a step could be scored."""
        asyncio.run(self._run())

    def tasks_of(self, step: int) -> tuple[Task, ...]:
        """The tasks of a step, counted from 0: the next of the order, over and over."""
        count = self.recipe.rollouts.groups
        return tuple(self._order[(step * count + at) % len(self._order)] for at in range(count))

    async def _run(self) -> None:
        training = self.recipe.training
        run = TrainingRun.open(self.directory / "grpo", self.recipe.model, self._settings())
        with (
            WeightServer(self.local.engine) as server,
            Recorder(self.store) as recorder,
            reporting(training.report_to, run.directory, run.learner) as run.report,
        ):
            run.way = choose(training.push, server, rank=training.lora_rank)
            if server.version() == "default":
                server.set_version("0")
            if (late := run.catch_up(server)) is not None:
                self.say(f"weights {late.version} are served again")
            position = self._position()
            if position == 0:
                await self._evaluate(0)
            ahead: dict[int, asyncio.Task[list[Outcome]]] = {}
            try:
                for step in range(position, training.steps):
                    for coming in range(step, min(step + 1 + self.recipe.rollouts.ahead, training.steps)):
                        if coming not in ahead:
                            ahead[coming] = asyncio.create_task(self._roll_out(coming))
                    await ahead.pop(step)
                    report = await asyncio.to_thread(self._train, run, recorder, server)
                    self.reported(step, report)
                    self._advance(step + 1)
                    every = self.recipe.evaluation.every
                    if step + 1 == training.steps or (every and (step + 1) % every == 0):
                        await self._evaluate(step + 1)
            finally:
                for task in ahead.values():
                    task.cancel()
                await asyncio.gather(*ahead.values(), return_exceptions=True)

    async def _roll_out(self, step: int) -> list[Outcome]:
        chosen = self.recipe.rollouts
        # Rotated by the step, too: with as many tasks as harnesses every task would meet the same one for ever.
        names = [chosen.harnesses[(step + at) % len(chosen.harnesses)] for at in range(len(chosen.harnesses))]
        plan = self._plan(f"{self.recipe.name}-{step}", self.tasks_of(step), names, chosen.group_size, train=True)
        outcomes = await rollout(plan, self.store, progress=self.progress)
        if outcomes and all(outcome.stage == "failed" for outcome in outcomes):
            log = outcomes[0].log or self.directory
            raise ProcessFailed(f"no session of {plan.run} could be scored\n{self.local.explain(log)}")
        return outcomes

    def _train(self, run: TrainingRun, recorder: Recorder, server: WeightServer) -> StepReport | None:
        training = self.recipe.training
        choice = Choice(
            scale=training.scale, max_tokens=training.max_tokens, balance_sessions=training.balance_sessions
        )
        try:
            return run.step(
                Reader(self.store), recorder, choice=choice, max_lag=training.max_lag, server=server, say=self.say
            )
        except NothingToTrain as nothing:
            self.say(f"no update: {str(nothing).splitlines()[0]}")
            return None

    async def _evaluate(self, step: int) -> None:
        chosen = self.recipe.evaluation
        if chosen.tasks is None:
            return
        name = f"eval-{self.recipe.name}-{step}"
        names = chosen.harnesses or self.recipe.rollouts.harnesses
        plan = self._plan(name, tuple(load_tasks(chosen.tasks)), names, chosen.samples, train=False)
        await rollout(plan, self.store, progress=self.progress)
        self.evaluated(Run.load(Reader(self.store), name))

    def _plan(self, run: str, tasks: tuple[Task, ...], names: Sequence[str], size: int, *, train: bool) -> Plan:
        chosen = self.recipe.rollouts
        return self.local.through(
            Plan(
                run=run,
                tasks=tasks,
                runners=tuple(self._runners[name] for name in names),
                group_size=size,
                concurrency=chosen.concurrency,
                directory=self.directory / "sessions" / run,
                assignment=chosen.assign if train else "all",
                timeout=chosen.timeout,
                budget=Budget(turns=chosen.max_turns, tokens=chosen.max_session_tokens),
                rewards=self.rewards if train else (),
                train=train,
                sandbox=None if chosen.preload else self.sandbox,
                preload=chosen.preload,
            )
        )

    def _settings(self) -> Settings:
        training = self.recipe.training
        return Settings(
            learning_rate=training.learning_rate,
            loss=training.loss,
            token_budget=training.token_budget,
            gradient_checkpointing=training.gradient_checkpointing,
            seed=training.seed,
            lora=None if training.lora_rank is None else Lora(rank=training.lora_rank),
        )

    def _position(self) -> int:
        path = self.directory / "position.json"
        return int(json.loads(path.read_text())["step"]) if path.is_file() else 0

    def _advance(self, step: int) -> None:
        path = self.directory / "position.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"step": step}) + "\n")
        partial.replace(path)
