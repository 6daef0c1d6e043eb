"""`trainer run`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from certs import harnesses as table
from replay.reader import Reader
from replay.rewards import parse
from replay.store import Store
from trainer import processes
from trainer.commands import planning
from trainer.commands.common import console, errors, plain_errors, quiet_libraries
from trainer.recipe import Recipe

if TYPE_CHECKING:
    from trainer.evaluation import Run
    from trainer.sft import SftReport
    from trainer.training import StepReport


def run(
    recipe: Annotated[Path, typer.Argument(help="A .toml file; trainer/recipes/ has some.")],
    out: Annotated[
        Path | None, typer.Option(help="Everything of the run; one there goes on. Default: runs/NAME.")
    ] = None,
    engine: Annotated[str, typer.Option(help="A vLLM that serves the model already. Default: one is started.")] = "",
    seed: Annotated[int | None, typer.Option(help="In place of the recipe's.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="In place of the recipe's.")] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Directory of a run whose evaluation before training is this one's too.")
    ] = None,
    sandbox: planning.SandboxOption = "auto",
    root: planning.RootOption = table.DEFAULT_ROOT,
) -> None:
    """Carry out an experiment: vLLM, proxy, rollouts, training, pushes, evaluations, from one file.

    It trains by GRPO, or on a teacher's sessions, as the recipe says. Stopped in any way, it goes on where it was: no
    session that ended is run again, no group is trained on twice.

    \b
        trainer run trainer/recipes/tiny.toml
        trainer run trainer/recipes/tiny.toml --seed 1 --out runs/tiny-1
        trainer run trainer/recipes/tiny-four.toml --out runs/four
        trainer run trainer/recipes/tiny-sft.toml --baseline runs/four
        trainer summary runs/tiny runs/tiny-1
    """
    from trainer import reporting
    from trainer.apprentice import Apprentice
    from trainer.display import differences_table, scores_table, step_line, taught_line
    from trainer.evaluation import Run
    from trainer.experiment import Experiment
    from trainer.local import SEQUENCES, LocalStack
    from trainer.policy import find_checkpoint
    from trainer.results import begin, conclude

    with plain_errors(), processes.ended_by_sigterm(), ExitStack() as stack:
        plan = Recipe.load(recipe)
        reporting.check(plan.training.report_to)
        plan = plan if seed is None else plan.seeded(seed)
        plan = plan if steps is None else plan.lasting(steps)
        plan = plan.model_copy(update={"model": str(find_checkpoint(plan.model))})
        directory = out or Path("runs") / plan.name
        before = begin(directory, plan, baseline)
        began = time.monotonic()

        def say(text: str) -> None:
            errors.print(f"[dim]{time.monotonic() - began:5.0f} s[/]  {text}", highlight=False)

        if plan.training.push == "nccl" and not engine:
            raise ValueError(
                'push = "nccl" needs a vLLM on a GPU of its own: start it with `CUDA_VISIBLE_DEVICES=1 trainer serve '
                "MODEL --nccl`, and say --engine"
            )
        quiet_libraries()
        store_url = f"sqlite:///{directory / 'harnesstap.db'}"
        local = LocalStack(
            model=plan.model,
            store_url=store_url,
            home=directory / "home",
            logs=directory / "logs",
            stack=stack,
            say=say,
            engine=engine,
            max_tokens=plan.rollouts.max_tokens,
            window=plan.rollouts.max_model_len,
            sequences=max(SEQUENCES, plan.rollouts.concurrency),
            # Adapters beside the weights cost speed in every forward pass, so only where they are asked for.
            lora_rank=plan.training.lora_rank if plan.training.push == "lora" else None,
        )
        for name in plan.harnesses:
            table.install(table.get(name), root, say=say, log=directory / "logs" / f"install-{name}.log")
        rewards = tuple(parse(text) for text in plan.rollouts.rewards)
        box = None if plan.rollouts.preload else planning.find_sandbox(sandbox)
        local.start()
        store = stack.enter_context(Store.open(store_url))

        def reported(step: int, report: StepReport | None) -> None:
            sessions = Reader(store).sessions(prefix=f"{plan.name}-{step}.")
            console.print(step_line(step, sessions, report), highlight=False)

        def demonstrated(attempt: int, solved: int, cells: int) -> None:
            console.print(f"teacher, attempt {attempt}: {solved}/{cells} cells of task and harness solved")

        def taught(report: SftReport) -> None:
            console.print(taught_line(report), highlight=False)

        def evaluated(found: Run) -> None:
            console.print(scores_table([found]))

        lab: dict[str, Any] = {
            "recipe": plan,
            "directory": directory,
            "local": local,
            "store": store,
            "root": root,
            "sandbox": box,
            "baseline": before,
            "evaluated": evaluated,
            "say": say,
        }
        if plan.sft is None:
            Experiment(**lab, rewards=rewards, reported=reported).run()
        else:
            Apprentice(**lab, demonstrated=demonstrated, taught=taught).run()
        if plan.evaluation.tasks is not None:
            after = Run.load(Reader(store), plan.evaluation_name(plan.updates))
            ends = [before or Run.load(Reader(store), plan.evaluation_name(0)), after]
            console.print(differences_table(*ends))
            conclude(directory, ends)
        say(f"done; look at it with: replay list --store {store_url}")
