"""A recipe that learns from a teacher: its sessions, supervised learning on them, evaluations before and after.

The teacher tries each task in each harness until it is solved, a few times at most, and the first session that solved
it is imitated. Stopped in any way, it goes on where it was: no session that ended is run again, and a student that has
been taught (sft/ has its weights and report.json) is not taught again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from replay.reader import Reader
from replay.schema import Session
from trainer.adapters import Lora
from trainer.imitation import Demonstrations, demonstrations
from trainer.kept import keep
from trainer.lab import Lab
from trainer.local import LocalStack
from trainer.policy import Policy, load_policy, text_prompts, token_logprobs
from trainer.push import BF16_TOLERANCE, FP32_TOLERANCE, Pushed, WeightServer, push
from trainer.recipe import Imitation, Recipe, Teacher
from trainer.sft import SftReport, SftSettings, teach
from trainer.students import examples_for
from trainer.tasks import load_tasks
from trainer.tutor import tutor

TAUGHT = "1"
"""The weight version of the student that was taught."""
_REPORT = "report.json"


@dataclass(slots=True, kw_only=True)
class Apprentice(Lab):
    """A recipe with [teacher] and [sft].

    `demonstrated` hears, after every round of attempts, its number and how many of how many cells (task x harness) are
    solved, `taught` what came of the training.
    """

    demonstrated: Callable[[int, int, int], None] = lambda *_: None
    taught: Callable[[SftReport], None] = lambda _: None

    def run(self) -> None:
        """All that is left of the recipe.

        Raises ProcessFailed when no session of the teacher's could be scored, ValueError when it solved nothing.
        """
        asyncio.run(self._run())

    async def _run(self) -> None:
        teacher, settings = sections(self.recipe)
        weights = self.directory / "sft" / "weights"
        with WeightServer(self.local.engine) as server:
            if not weights.with_name(_REPORT).is_file():
                self._begin(server)
                await self.evaluate(0)
                await self._demonstrate(teacher, settings.seed)
                await asyncio.to_thread(self._teach, teacher, settings, weights)
            pushed = await asyncio.to_thread(self._serve, server, weights)
            self.say(f"the student is served; logprobs equal within {pushed.gap:.2g}")
        await self.evaluate(1)

    def _begin(self, server: WeightServer) -> None:
        """Name the weights of the untaught student, which are measured first."""
        if (served := server.version()) not in ("default", "0"):
            raise ValueError(f"the vLLM at {server.url} serves weights {served} already: start it anew")
        server.set_version("0")

    async def _demonstrate(self, teacher: Teacher, seed: int) -> None:
        """The teacher's attempts at what it has not solved yet."""
        chosen = self.recipe.rollouts
        tasks = load_tasks(chosen.tasks)
        cells = len(tasks) * len(chosen.harnesses)
        with ExitStack() as stack:
            local: LocalStack | None = None
            for attempt in range(1, teacher.attempts + 1):
                solved = self.kept(attempt - 1)
                if len(solved) == cells:
                    return
                if local is None:
                    local = await asyncio.to_thread(tutor, teacher, self.local, stack, seed=seed)
                plan = self.plan(
                    self._run_name(attempt),
                    tasks,
                    chosen.harnesses,
                    group_size=1,
                    without=frozenset((str(session.task), str(session.harness)) for session in solved),
                    train=False,
                )
                await self.roll_out(plan, local)
                self.demonstrated(attempt, len(self.kept(attempt)), cells)

    def kept(self, attempts: int) -> list[Session]:
        """Of the teacher's first `attempts` at each task in each harness the first that solved it."""
        found: dict[tuple[str | None, str | None], Session] = {}
        for attempt in range(1, attempts + 1):
            choice = Demonstrations(prefix=f"{self._run_name(attempt)}.")
            for session in demonstrations(Reader(self.store), choice):
                found.setdefault((session.task, session.harness), session)
        return list(found.values())

    def _run_name(self, attempt: int) -> str:
        return f"teacher-{self.recipe.name}-{attempt}"

    def _teach(self, teacher: Teacher, settings: Imitation, weights: Path) -> None:
        sessions = self.kept(teacher.attempts)
        choice = Demonstrations(max_tokens=settings.max_tokens)
        policy = load_policy(Path(self.recipe.model))
        found = examples_for(policy, Reader(self.store), sessions, choice, settings.rerender)
        for reason, tokens in found.left_out.most_common():
            self.say(f"left out: {tokens:,} sampled tokens ({reason})")
        if not found.examples:
            raise ValueError(f"nothing to imitate: the teacher solved {len(sessions)} tasks, and no turn can be used")
        self.say(f"teaching {len(found.examples)} examples, {found.tokens:,} tokens, of {len(sessions)} sessions")
        report = teach(policy, found.examples, sft_settings(settings), logs=weights.with_name("logs"))
        keep(
            policy,
            weights,
            self.store,
            version=TAUGHT,
            trained_from="0",
            query={"method": "sft", "sessions": [s.name for s in sessions], "rerender": settings.rerender},
            seed=settings.seed,
            stats={"examples": report.examples, "tokens": report.tokens, "loss": report.last_loss},
        )
        partial = weights.with_name(f".{_REPORT}.partial")
        partial.write_text(json.dumps(asdict(report), indent=2) + "\n")
        partial.replace(weights.with_name(_REPORT))  # last: without it, it counts as not taught
        self.taught(report)

    def _serve(self, server: WeightServer, weights: Path) -> Pushed:
        """Push the student, verified, into the vLLM that served it untaught."""
        policy: Policy = load_policy(weights)
        bf16 = torch.cuda.is_available()
        return push(
            server,
            weights,
            TAUGHT,
            prompts=text_prompts(policy.tokenizer),
            score=lambda ids, start: token_logprobs(policy.model, ids, start, autocast=bf16),
            tolerance=BF16_TOLERANCE if bf16 else FP32_TOLERANCE,
        )


def sections(recipe: Recipe) -> tuple[Teacher, Imitation]:
    """The two sections of a recipe that learns from a teacher. Raises ValueError for another."""
    if recipe.teacher is None or recipe.sft is None:
        raise ValueError(f"recipe {recipe.name} has no [teacher] and [sft]")
    return recipe.teacher, recipe.sft


def sft_settings(chosen: Imitation) -> SftSettings:
    """As `trainer.sft` takes them."""
    return SftSettings(
        epochs=chosen.epochs,
        learning_rate=chosen.learning_rate,
        batch_size=chosen.batch_size,
        micro_batch=chosen.micro_batch,
        gradient_checkpointing=chosen.gradient_checkpointing,
        lora=None if chosen.lora_rank is None else Lora(rank=chosen.lora_rank),
        seed=chosen.seed,
    )
