"""What to roll out: tasks, harnesses, groups; and what of it is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from certs.harnesses import Harness
from certs.keys import is_session_name
from replay.rewards import RewardFile
from replay.schema import Session
from replay.seeds import derived
from trainer.tasks import Task
from trainer.tasks.sandbox import Sandbox

Stage = Literal["waiting", "running", "done", "failed", "skipped"]
Assignment = Literal["all", "rotate"]


@dataclass(frozen=True, slots=True)
class Runner:
    """An installed harness: `program` is its executable."""

    harness: Harness
    program: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one session may use, enforced by the proxy with the provider's own error; None: no limit.

    `turns` counts answered model calls, `tokens` sampled ones.
    """

    turns: int | None = None
    tokens: int | None = None

    def metadata(self) -> dict[str, Any]:
        """As a session carries it."""
        found = {name: value for name, value in (("turns", self.turns), ("tokens", self.tokens)) if value is not None}
        return {"budget": found} if found else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to roll out, and through which proxy.

    `run` names this set of rollouts; run again under the same name, it does what is missing. A group is one task with
    one harness, `group_size` times: `assignment` gives every task to all `runners`, or to one of them in turn.
    `directory` takes logs and workspaces. `timeout` is for one harness process, in seconds. `bundle` is the CA bundle
    the harness is to trust, `home` the product's folder with the secret that keys come from. `rewards` are added to a
    group's rewards when the last of it has ended. `without` names cells, a task and a harness each, that are left out.
    """

    run: str
    tasks: tuple[Task, ...]
    runners: tuple[Runner, ...]
    group_size: int
    concurrency: int
    directory: Path
    proxy_host: str = "127.0.0.1"
    proxy_port: int = 8080
    home: Path = Path()
    bundle: Path = Path()
    assignment: Assignment = "all"
    timeout: float = 300.0
    budget: Budget = Budget()  # frozen
    rewards: tuple[RewardFile, ...] = ()
    without: frozenset[tuple[str, str]] = frozenset()
    train: bool = True
    """Whether the sessions form groups, which a trainer takes."""
    keep_workspaces: bool = False
    sandbox: Sandbox | None = None
    isolate: bool = False
    """Give each harness process a network of its own, whose only way out is the proxy."""
    seed: int | None = None
    """What the sessions' sampling follows from; None: each run of them samples anew."""
    preload: bool = False
    """Fork the sessions of harnesses that can be preloaded from one process that has imported them."""

    def __post_init__(self) -> None:
        if self.group_size < 1 or self.concurrency < 1:
            raise ValueError(f"group size {self.group_size} and concurrency {self.concurrency} must be at least 1")
        if "." in self.run:
            raise ValueError(f"the name of a run has no dots, since they part the names of its sessions: {self.run!r}")
        if not self.tasks or not self.runners:
            raise ValueError("no tasks to roll out" if self.runners else "no harness to roll out with")
        if self.sandbox is not None and self.preload:
            raise ValueError("a preloaded harness cannot be forked into a sandbox: choose one of the two")
        if self.isolate and self.preload:
            raise ValueError("a preloaded harness cannot be forked into a network of its own: choose one of the two")
        for task in self.tasks:
            if task.needs_sandbox and self.sandbox is None:
                raise ValueError(f"{task.path}: a task in Harbor's format runs in a sandbox, and none is used")
        if self.rewards and not self.train:
            raise ValueError("reward files complete groups, and these sessions form none")

    def cells(self) -> list[tuple[Task, Runner]]:
        """Which task is done with which harness, in order."""
        if self.assignment == "rotate":
            cells = [(task, self.runners[at % len(self.runners)]) for at, task in enumerate(self.tasks)]
        else:
            cells = [(task, runner) for task in self.tasks for runner in self.runners]
        return [(task, runner) for task, runner in cells if (task.name, runner.harness.name) not in self.without]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One session to run: the `index`-th of its group."""

    name: str
    group: str | None
    task: Task
    runner: Runner
    index: int
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended. `reward` is the task's own; None: nobody can tell.

    `exit` is None for one that ran out of time, or was never started.
    """

    attempt: Attempt
    stage: Stage
    reward: float | None
    exit: int | None
    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    log: Path | None = None


Progress = Callable[[Attempt, Stage, Outcome | None], None]


def attempts(plan: Plan, existing: Iterable[Session]) -> tuple[list[Attempt], list[Session]]:
    """What is left to run of `plan`, and the sessions an earlier, killed run left open.

    A name is never used twice for calls: the turns of two runs would mix. Where an attempt was begun and never ended,
    it is made again under a new name.
    """
    known = {session.name: session for session in existing}
    left: list[Attempt] = []
    abandoned: list[Session] = []
    for task, runner in plan.cells():
        harness = runner.harness.name
        group = f"{plan.run}/{task.name}/{harness}" if plan.train else None
        for index in range(plan.group_size):
            base = f"{plan.run}.{task.name}.{harness}.{index}"
            if not is_session_name(f"{base}.99"):
                raise ValueError(f"{base!r} cannot name a session: choose another --run or shorter task names")
            name, again = base, 1
            while name in known and known[name].status == "open":
                abandoned.append(known[name])
                again += 1
                name = f"{base}.{again}"
            # A failed attempt counts as made: what broke it would break it again, and its group knows of it.
            if name not in known:
                # Of the first name, so that what a kill ended is sampled as it would have been.
                seed = None if plan.seed is None else derived(plan.seed, base)
                left.append(Attempt(name=name, group=group, task=task, runner=runner, index=index, seed=seed))
    return left, abandoned
