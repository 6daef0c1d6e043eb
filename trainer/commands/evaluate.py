"""`trainer eval`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from certs import harnesses as table
from replay.reader import Reader
from replay.store import DEFAULT_URL, Store
from trainer.commands import planning
from trainer.commands.common import CORES, StoreOption, console, errors, plain_errors


def evaluate(
    tasks: Annotated[Path, typer.Argument(help="A folder of tasks, best ones that were never trained on.")],
    run: Annotated[str, typer.Option(help="Name of this evaluation; run again, it does what is missing.")] = "",
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
    directory: planning.DirectoryOption = Path("runs/evaluations"),
    sandbox: planning.SandboxOption = "auto",
    preload: planning.PreloadOption = False,
    seed: planning.SeedOption = None,
    root: planning.RootOption = table.DEFAULT_ROOT,
    harness_file: planning.FileOption = table.SHIPPED,
) -> None:
    """Measure the served policy: solved tasks under each harness, with intervals, calls and tokens.

    Evaluation sessions belong to no group of training: a run's name begins with `eval-`.

    \b
        trainer eval held-out/ --run before --harness mini-swe-agent,codex
        trainer eval held-out/ --run after --harness mini-swe-agent,codex --compare before --save after.json
    """
    from trainer.display import differences_table, scores_table
    from trainer.evaluation import Run
    from trainer.evaluation import compare as difference
    from trainer.plan import Budget

    with plain_errors():
        name = evaluation_name(run or time.strftime("%Y%m%d-%H%M%S"))
        plan = planning.make_plan(
            tasks,
            run=name,
            harness=harness,
            group_size=samples,
            concurrency=concurrency,
            only=only,
            proxy=proxy,
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
        with Store.open(store) as opened:
            planning.roll_out(plan, opened)
            reader = Reader(opened)
            this = Run.load(reader, name)
            others = [Run.load(reader, evaluation_name(other)) for other in compare or ()]
        console.print(scores_table([*others, this]))
        for other in others:
            console.print(differences_table(other, this))
        if save is not None:
            document = {
                "runs": {one.name: [score.document() for score in one.scores()] for one in (*others, this)},
                "differences": {
                    other.name: {
                        at: None if found is None else [found.value, found.low, found.high]
                        for at in this.harnesses
                        for found in [difference(other, this, at)]
                    }
                    for other in others
                },
            }
            save.write_text(json.dumps(document, indent=2) + "\n")
            errors.print(f"figures: {save}")
        if plot is not None:
            from trainer.plots import bars

            bars([*others, this], plot)
            errors.print(f"plot: {plot}")


def evaluation_name(run: str) -> str:
    """The run's name in the record."""
    return run if run.startswith("eval-") else f"eval-{run}"
