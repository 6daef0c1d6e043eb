"""`trainer eval`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from certs import harnesses as table
from replay.reader import Reader
from replay.store import DEFAULT_URL, Store
from trainer import processes
from trainer.commands import planning
from trainer.commands.common import CORES, StoreOption, console, errors, plain_errors
from trainer.plan import Budget, Plan

if TYPE_CHECKING:
    from trainer.evaluation import Run


ModelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Serve this checkpoint (directory or Hugging Face id) meanwhile, in place of what --proxy leads to; "
        "repeated: one after the other, each compared with the first.",
    ),
]


def evaluate(
    tasks: Annotated[Path, typer.Argument(help="A folder of tasks, best ones that were never trained on.")],
    run: Annotated[str, typer.Option(help="Name of this evaluation; run again, it does what is missing.")] = "",
    model: ModelOption = None,
    harness: planning.HarnessOption = "mini-swe-agent",
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, help="Sessions a task and harness.")] = 1,
    compare: Annotated[
        list[str] | None, typer.Option(help="Runs to compare with, by name; tasks are paired. May be repeated.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the figures to this .json.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw them into this .png (needs matplotlib).")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Processes at a time.")] = CORES,
    only: planning.TaskOption = None,
    proxy: planning.ProxyOption = "127.0.0.1:8080",
    store: StoreOption = DEFAULT_URL,
    timeout: planning.TimeoutOption = 300.0,
    max_turns: planning.TurnsOption = None,
    max_tokens: planning.TokensOption = None,
    max_reply: Annotated[
        int, typer.Option("--max-tokens", min=1, help="With --model: sampled tokens of one reply.")
    ] = 4096,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="With --model: prompt + reply, tokens.")] = None,
    directory: planning.DirectoryOption = Path("runs/evaluations"),
    sandbox: planning.SandboxOption = "auto",
    preload: planning.PreloadOption = False,
    seed: planning.SeedOption = None,
    root: planning.RootOption = table.DEFAULT_ROOT,
    harness_file: planning.FileOption = table.SHIPPED,
) -> None:
    """Measure a policy: solved tasks under each harness, with intervals, calls and tokens.

    Evaluation sessions belong to no group of training: a run's name begins with `eval-`. With --model, vLLM and proxy
    are started and ended here; several models become one table of model by harness.

    \b
        trainer eval held-out/ --run before --harness mini-swe-agent,codex
        trainer eval held-out/ --run after --harness mini-swe-agent,codex --compare before --save after.json
        trainer eval held-out/ --model MODEL --model runs/grpo/weights/8 --harness all --plot matrix.png
    """
    from trainer.display import differences_table, matrix_table, scores_table
    from trainer.evaluation import Run

    with plain_errors(), processes.ended_by_sigterm():
        name = evaluation_name(run or time.strftime("%Y%m%d-%H%M%S"))
        plan = planning.make_plan(
            tasks,
            run=name,
            harness=harness,
            group_size=samples,
            concurrency=concurrency,
            only=only,
            proxy="" if model else proxy,
            timeout=timeout,
            directory=directory,
            keep=False,
            root=root,
            harness_file=harness_file,
            preload=preload,
            seed=seed,
            sandbox=sandbox,
            budget=Budget(turns=max_turns, tokens=max_tokens),
            train=False,
        )
        serving = {"store_url": store, "max_tokens": max_reply, "window": max_model_len}
        with Store.open(store) as opened:
            reader = Reader(opened)
            others = [Run.load(reader, evaluation_name(other)) for other in compare or ()]
            if model:
                from trainer.policy import find_checkpoint

                checkpoints = {one: str(find_checkpoint(named)) for one, named in run_names(name, model).items()}
                for one, checkpoint in checkpoints.items():
                    _roll_out_with(checkpoint, replace(plan, run=one, directory=directory / one), opened, **serving)
            else:
                checkpoints = {name: ""}
                planning.roll_out(plan, opened)
            made = [Run.load(reader, one) for one in checkpoints]
        pairs = [(other, one) for other in others for one in made] + [(made[0], one) for one in made[1:]]
        console.print(scores_table([*others, *made]))
        if len(made) > 1:
            console.print(matrix_table([*others, *made]))
        for before, after in pairs:
            console.print(differences_table(before, after))
        if save is not None:
            save.write_text(json.dumps(_document([*others, *made], pairs), indent=2) + "\n")
            errors.print(f"figures: {save}")
        if plot is not None:
            from trainer.plots import bars

            bars([*others, *made], plot)
            errors.print(f"plot: {plot}")


def evaluation_name(run: str) -> str:
    """The run's name in the record."""
    return run if run.startswith("eval-") else f"eval-{run}"


def run_names(run: str, models: Sequence[str]) -> dict[str, str]:
    """Each model by the name of its run: `run` itself for one, else with the last part of each model's name."""
    if len(models) == 1:
        return {run: models[0]}
    words = [re.sub(r"[^A-Za-z0-9_-]+", "-", Path(model).name).strip("-") or "model" for model in models]
    return {
        f"{run}-{word}" if words.count(word) == 1 else f"{run}-{word}-{at}": model
        for at, (word, model) in enumerate(zip(words, models, strict=True), start=1)
    }


def _roll_out_with(checkpoint: str, plan: Plan, store: Store, **serving: Any) -> None:
    """Carry out `plan` with `checkpoint` served by a vLLM and a proxy of its own."""
    from trainer.local import SEQUENCES, LocalStack

    def say(text: str) -> None:
        errors.print(f"[dim]{plan.run}[/]  {text}", highlight=False)

    with ExitStack() as stack:
        local = LocalStack(
            model=checkpoint,
            home=plan.directory.parent / "home",
            logs=plan.directory / "logs",
            stack=stack,
            say=say,
            sequences=max(SEQUENCES, plan.concurrency),
            **serving,
        )
        local.start()
        planning.roll_out(local.through(plan), store, local)


def _document(runs: Sequence[Run], pairs: Sequence[tuple[Run, Run]]) -> dict[str, Any]:
    """The figures as JSON."""
    from trainer.evaluation import compare

    differences = []
    for before, after in pairs:
        found = {harness: compare(before, after, harness) for harness in after.harnesses}
        shown = {name: None if one is None else [one.value, one.low, one.high] for name, one in found.items()}
        differences.append({"before": before.name, "after": after.name, "by_harness": shown})
    return {
        "runs": {one.name: [score.document() for score in one.scores()] for one in runs},
        "differences": differences,
    }
