"""`trainer rollout`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from certs import harnesses as table
from replay.store import DEFAULT_URL, Store
from trainer.commands import planning
from trainer.commands.common import CORES, StoreOption, plain_errors
from trainer.plan import Assignment, Budget


def rollout(
    tasks: Annotated[Path, typer.Argument(help="A folder of tasks (prompt.md, files/, verify.sh).")],
    run: Annotated[str, typer.Option(help="Name of this set; run again, it does what is missing.")] = "",
    harness: planning.HarnessOption = "mini-swe-agent",
    assign: Annotated[
        Assignment, typer.Option(help="all: every task with every harness; rotate: each task with one, in turn.")
    ] = "all",
    group_size: Annotated[int, typer.Option("--group-size", "-g", min=1, help="Sessions a task and harness.")] = 4,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Processes at a time.")] = CORES,
    only: planning.TaskOption = None,
    reward: planning.RewardOption = None,
    proxy: planning.ProxyOption = "127.0.0.1:8080",
    store: StoreOption = DEFAULT_URL,
    timeout: planning.TimeoutOption = 300.0,
    max_turns: planning.TurnsOption = None,
    max_tokens: planning.TokensOption = None,
    directory: planning.DirectoryOption = Path("runs/rollouts"),
    keep: planning.KeepOption = False,
    sandbox: planning.SandboxOption = "auto",
    isolate: planning.IsolateOption = False,
    preload: planning.PreloadOption = False,
    seed: planning.SeedOption = None,
    root: planning.RootOption = table.DEFAULT_ROOT,
    harness_file: planning.FileOption = table.SHIPPED,
) -> None:
    """Run harnesses on every task several times behind the proxy, and score each session.

    A session is named RUN.TASK.HARNESS.INDEX; those of one task and harness form a group.

    \b
        trainer rollout tasks/ --run monday --group-size 8
        trainer rollout tasks/ --harness mini-swe-agent,codex --assign rotate --reward fewer_calls:alpha=0.1
        trainer rollout tasks/ --run try --task rename --group-size 1 --keep
    """
    with plain_errors():
        plan = planning.make_plan(
            tasks,
            run=run or time.strftime("%Y%m%d-%H%M%S"),
            harness=harness,
            group_size=group_size,
            concurrency=concurrency,
            only=only,
            proxy=proxy,
            timeout=timeout,
            directory=directory,
            keep=keep,
            root=root,
            harness_file=harness_file,
            preload=preload,
            seed=seed,
            isolate=isolate,
            sandbox=sandbox,
            assignment=assign,
            budget=Budget(turns=max_turns, tokens=max_tokens),
            rewards=reward or (),
        )
        with Store.open(store) as opened:
            outcomes = planning.roll_out(plan, opened)
        if outcomes and all(outcome.stage == "failed" for outcome in outcomes):
            raise typer.Exit(1)
