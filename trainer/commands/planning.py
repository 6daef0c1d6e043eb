"""Options that every command takes which runs harnesses, and the plan they make."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from certs import ca, isolation
from certs import harnesses as table
from certs.files import default_home
from replay.reader import Reader
from replay.rewards import parse
from replay.store import Store
from trainer import processes
from trainer.commands.common import console, errors
from trainer.display import RolloutView, sessions_table
from trainer.local import LocalStack
from trainer.plan import Assignment, Budget, Outcome, Plan, Runner
from trainer.rollout import rollout
from trainer.tasks import load_tasks
from trainer.tasks.sandbox import Sandbox, SandboxError

SandboxChoice = Literal["auto", "bwrap", "off"]

HarnessOption = Annotated[
    str, typer.Option("--harness", help="Which harnesses, parted by commas; all: every one that is installed.")
]
TaskOption = Annotated[list[str] | None, typer.Option("--task", help="Only these tasks; may be repeated.")]
ProxyOption = Annotated[str, typer.Option("--proxy", help="Where `tap up` listens.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", help="Seconds for one harness process.")]
TurnsOption = Annotated[int | None, typer.Option("--max-turns", min=1, help="Model calls of one session.")]
TokensOption = Annotated[int | None, typer.Option("--max-session-tokens", min=1, help="Sampled tokens of one session.")]
DirectoryOption = Annotated[Path, typer.Option("--directory", help="For logs and workspaces.")]
KeepOption = Annotated[bool, typer.Option("--keep", help="Keep workspaces and home folders.")]
SandboxOption = Annotated[
    SandboxChoice,
    typer.Option("--sandbox", help="Run harness and scripts in bubblewrap; auto: where it works."),
]
PreloadOption = Annotated[
    bool, typer.Option("--preload", help="Import a Python harness once and fork its sessions: much faster starts.")
]
IsolateOption = Annotated[
    bool, typer.Option("--isolate", help="A network for each harness, with no way out but the proxy (Linux).")
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", help="Sample the same again: each call's seed follows from it, the session and the call."),
]
RootOption = Annotated[Path, typer.Option("--root", help="Where `tap harness install` installed.")]
FileOption = Annotated[Path, typer.Option("--harness-file", help="A TOML file like the shipped one.")]
RewardOption = Annotated[
    list[str] | None,
    typer.Option("--reward", help="Add the terms of this reward file (a shipped name or a path); may be repeated."),
]


def make_plan(
    tasks: Path,
    *,
    run: str,
    harness: str,
    group_size: int,
    concurrency: int,
    only: Sequence[str] | None,
    proxy: str,
    timeout: float,
    directory: Path,
    keep: bool,
    root: Path,
    harness_file: Path,
    assignment: Assignment = "all",
    budget: Budget | None = None,
    rewards: Sequence[str] = (),
    train: bool = True,
    seed: int | None = None,
    preload: bool = False,
    isolate: bool = False,
    sandbox: SandboxChoice = "auto",
) -> Plan:
    """The plan that the options describe; raises what `plain_errors` tells, naming the option at fault.

    An empty `proxy` is for the caller to fill in (`LocalStack.through`).
    """
    chosen = [task for task in load_tasks(tasks) if not only or task.name in only]
    if not chosen:
        raise ValueError(f"no task of {tasks} is called {', '.join(only or [])}")
    if isolate and (reason := isolation.why_not()) is not None:
        raise ValueError(f"--isolate does not work here: {reason}")
    host, port = _address(proxy) if proxy else ("127.0.0.1", 0)
    if proxy:
        _check_proxy(host, port)
    home = default_home()
    return Plan(
        run=run,
        tasks=tuple(chosen),
        runners=_runners(harness, root, harness_file),
        group_size=group_size,
        concurrency=concurrency,
        proxy_host=host,
        proxy_port=port,
        home=home,
        bundle=ca.load(home).bundle if proxy else Path(),
        directory=directory / run,
        assignment=assignment,
        timeout=timeout,
        budget=budget or Budget(),
        rewards=tuple(parse(text) for text in rewards),
        train=train,
        seed=seed,
        preload=preload,
        isolate=isolate,
        sandbox=find_sandbox("off" if preload and sandbox == "auto" else sandbox),
        keep_workspaces=keep,
    )


def _runners(harness: str, root: Path, harness_file: Path) -> tuple[Runner, ...]:
    """Those that `harness` names, or all that are installed; says which are not."""
    if harness.strip() != "all":
        specs = [table.get(name.strip(), harness_file) for name in harness.split(",")]
        return tuple(Runner(spec, table.find(spec, root)) for spec in specs)
    found: list[Runner] = []
    missing: list[str] = []
    for spec in table.load(harness_file).values():
        try:
            found.append(Runner(spec, table.find(spec, root)))
        except table.HarnessError:
            missing.append(spec.name)
    if not found:
        raise ValueError(
            f"no harness is installed in {root}: run `tap harness install NAME`, one of {', '.join(missing)}"
        )
    if missing:
        errors.print(f"not installed, and left out: {', '.join(missing)}", markup=False, highlight=False)
    return tuple(found)


def find_sandbox(choice: SandboxChoice) -> Sandbox | None:
    """The sandbox to use; raises SandboxError for "bwrap" where it does not work. "auto" says when it goes without."""
    if choice == "off":
        return None
    try:
        return Sandbox.find()
    except SandboxError as error:
        if choice == "bwrap":
            raise
        note = f"no sandbox ({error}): what the model runs, runs as you"
        errors.print(note, style="yellow", markup=False, highlight=False)
        return None


def roll_out(plan: Plan, store: Store, local: LocalStack | None = None) -> list[Outcome]:
    """Carry out `plan` with live progress, then show its sessions and what failed; no longer than `local` lives."""
    names = ", ".join(runner.harness.name for runner in plan.runners)
    with processes.ended_by_sigterm(), RolloutView(console, f"{names}, run {plan.run}") as view:
        work = rollout(plan, store, progress=view)
        outcomes = asyncio.run(work if local is None else local.during(work))
    if not outcomes:
        console.print(f"run {plan.run} is complete: nothing was left to do")
    console.print(sessions_table(Reader(store), f"{plan.run}.", f"Run {plan.run}"))
    for outcome in outcomes:
        if outcome.stage == "failed":
            note = f"{outcome.attempt.name}: {outcome.note}; see {outcome.log}"
            console.print(note, style="yellow", markup=False)
    return outcomes


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
