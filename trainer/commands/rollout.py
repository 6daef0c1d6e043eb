"""`trainer rollout`."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Annotated

import typer

from certs import ca, harnesses
from certs.files import default_home
from replay.reader import Reader
from replay.store import DEFAULT_URL, Store
from trainer.commands.common import CORES, StoreOption, console, plain_errors
from trainer.tasks import load_tasks


def rollout(
    tasks: Annotated[Path, typer.Argument(help="A folder of tasks (prompt.md, files/, verify.sh).")],
    run: Annotated[str, typer.Option(help="Name of this set; run again, it does what is missing.")] = "",
    harness: Annotated[str, typer.Option(help="Which harness.")] = "mini-swe-agent",
    group_size: Annotated[int, typer.Option("--group-size", "-g", min=1, help="Sessions a task.")] = 4,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Processes at a time.")] = CORES,
    only: Annotated[list[str] | None, typer.Option("--task", help="Only these tasks; may be repeated.")] = None,
    proxy: Annotated[str, typer.Option(help="Where `tap up` listens.")] = "127.0.0.1:8080",
    store: StoreOption = DEFAULT_URL,
    timeout: Annotated[float, typer.Option(help="Seconds for one harness process.")] = 300.0,
    directory: Annotated[Path, typer.Option(help="For logs and workspaces.")] = Path("runs/rollouts"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep workspaces and home folders.")] = False,
    root: Annotated[Path, typer.Option(help="Where harnesses are installed.")] = harnesses.DEFAULT_ROOT,
    harness_file: Annotated[Path, typer.Option(help="A TOML file like the shipped one.")] = harnesses.SHIPPED,
) -> None:
    """Run a harness on every task several times behind the proxy, and score each session.

    A session is named RUN.TASK.HARNESS.INDEX; those of one task and harness form a group.

    \b
        trainer rollout tasks/ --run monday --group-size 8
        trainer rollout tasks/ --run try --task rename --group-size 1 --keep
    """
    from trainer.display import RolloutView, sessions_table
    from trainer.rollout import Plan
    from trainer.rollout import rollout as roll_out

    with plain_errors():
        spec = harnesses.get(harness, harness_file)
        chosen = [task for task in load_tasks(tasks) if not only or task.name in only]
        if not chosen:
            raise ValueError(f"no task of {tasks} is called {', '.join(only or [])}")
        host, port = _address(proxy)
        _check_proxy(host, port)
        name = run or time.strftime("%Y%m%d-%H%M%S")
        home = default_home()
        plan = Plan(
            run=name,
            tasks=tuple(chosen),
            harness=spec,
            program=harnesses.find(spec, root),
            group_size=group_size,
            concurrency=concurrency,
            proxy_host=host,
            proxy_port=port,
            home=home,
            bundle=ca.load(home).bundle,
            directory=directory / name,
            timeout=timeout,
            keep_workspaces=keep,
        )
        with Store.open(store) as opened:
            with RolloutView(console, f"{spec.name}, run {name}") as view:
                outcomes = asyncio.run(roll_out(plan, opened, progress=view))
            if not outcomes:
                console.print(f"run {name} is complete: nothing was left to do")
            console.print(sessions_table(Reader(opened), f"{name}.", f"Run {name}"))
            for outcome in outcomes:
                if outcome.stage == "failed":
                    log = plan.directory / outcome.attempt.name / "harness.log"
                    console.print(f"{outcome.attempt.name}: {outcome.note}; see {log}", style="yellow", markup=False)
        if outcomes and all(outcome.stage == "failed" for outcome in outcomes):
            raise typer.Exit(1)


def _address(text: str) -> tuple[str, int]:
    """HOST:PORT taken apart; raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _check_proxy(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        raise ValueError(f"no proxy answers at {host}:{port} ({error}): start `tap up`") from error
