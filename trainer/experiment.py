"""A recipe, carried out: rollouts, updates, pushes, evaluations; and gone on with where it was stopped.

The tasks have one order, drawn once by the seed. Step k takes the next tasks of it, whatever happened before: a restart
goes on at its position and repeats no session that has ended. The record tells the rest: a run of rollouts under the
same name does only what is missing, and groups that were trained on are used up.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from replay.reader import Reader
from replay.rewards import RewardFile
from replay.writer import Recorder
from trainer.adapters import Lora
from trainer.advantages import NothingToTrain
from trainer.grpo import Settings
from trainer.intake import Intake
from trainer.lab import Lab
from trainer.plan import Outcome
from trainer.push import WeightServer, choose
from trainer.reporting import reporting
from trainer.selection import Choice
from trainer.tasks import Task, load_tasks
from trainer.training import StepReport, TrainingRun


@dataclass(slots=True, kw_only=True)
class Experiment(Lab):
    """A recipe with [training]: `rewards` are added to those of the tasks.

    `reported` hears of every step (None: the step's groups had no contrast).
    """

    rewards: tuple[RewardFile, ...] = ()
    reported: Callable[[int, StepReport | None], None] = lambda *_: None
    _order: list[Task] = field(init=False)

    def __post_init__(self) -> None:
        Lab.__post_init__(self)
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
                await self.evaluate(0)
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
                        await self.evaluate(step + 1)
            finally:
                for task in ahead.values():
                    task.cancel()
                await asyncio.gather(*ahead.values(), return_exceptions=True)

    async def _roll_out(self, step: int) -> list[Outcome]:
        chosen = self.recipe.rollouts
        # Rotated by the step, too: with as many tasks as harnesses every task would meet the same one for ever.
        names = [chosen.harnesses[(step + at) % len(chosen.harnesses)] for at in range(len(chosen.harnesses))]
        plan = self.plan(
            f"{self.recipe.name}-{step}",
            self.tasks_of(step),
            names,
            group_size=chosen.group_size,
            assignment=chosen.assign,
            rewards=self.rewards,
        )
        return await self.roll_out(plan, self.local)

    def _train(self, run: TrainingRun, recorder: Recorder, server: WeightServer) -> StepReport | None:
        training = self.recipe.training
        choice = Choice(
            scale=training.scale, max_tokens=training.max_tokens, balance_sessions=training.balance_sessions
        )
        intake = Intake(choice=choice, max_lag=training.max_lag)
        try:
            return run.step(Reader(self.store), recorder, intake, server=server, say=self.say)
        except NothingToTrain as nothing:
            self.say(f"no update: {str(nothing).splitlines()[0]}")
            return None

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
