"""Rollouts: an unmodified harness runs a task behind the proxy, several times; each run is a session with a reward.

A session gets a fresh HOME and a fresh workspace, its own key for the proxy, and a time limit that ends everything it
started. What the model did is recorded by the proxy; here the session is opened, run and scored.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from certs.environment import harness_environment, proxy_url
from certs.harnesses import Harness, environment
from certs.keys import is_session_name, session_key
from replay.reader import Reader
from replay.records import NewSession
from replay.schema import Session
from replay.store import Store
from replay.writer import Recorder
from trainer import processes
from trainer.tasks import Score, Task, TaskError, prepare, verify

Stage = Literal["waiting", "running", "done", "failed", "skipped"]
VERIFY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to roll out, and through which proxy.

    `run` names this set of rollouts; run again under the same name, it does what is missing. `directory` takes logs
    and workspaces. `timeout` is for one harness process, in seconds. `bundle` is the CA bundle the harness is to trust,
    `home` the product's folder with the secret that keys come from.
    """

    run: str
    tasks: tuple[Task, ...]
    harness: Harness
    program: Path
    group_size: int
    concurrency: int
    proxy_host: str
    proxy_port: int
    home: Path
    bundle: Path
    directory: Path
    timeout: float = 300.0
    keep_workspaces: bool = False

    def __post_init__(self) -> None:
        if self.group_size < 1 or self.concurrency < 1:
            raise ValueError(f"group size {self.group_size} and concurrency {self.concurrency} must be at least 1")
        if "." in self.run:
            raise ValueError(f"the name of a run has no dots, since they part the names of its sessions: {self.run!r}")
        if not self.tasks:
            raise ValueError("no tasks to roll out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One session to run: the `index`-th of its task's group."""

    name: str
    group: str
    task: Task
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended. `reward` None: nobody can tell. `exit` None: it ran out of time, or was never started."""

    attempt: Attempt
    stage: Stage
    reward: float | None
    exit: int | None
    seconds: float
    note: str = ""


Progress = Callable[[Attempt, Stage, Outcome | None], None]


def attempts(plan: Plan, existing: Iterable[Session]) -> tuple[list[Attempt], list[Session]]:
    """What is left to run of `plan`, and the sessions an earlier, killed run left open.

    A name is never used twice for calls: the turns of two runs would mix. Where an attempt was begun and never ended,
    it is made again under a new name.
    """
    known = {session.name: session for session in existing}
    left: list[Attempt] = []
    abandoned: list[Session] = []
    for task in plan.tasks:
        group = f"{plan.run}/{task.name}/{plan.harness.name}"
        for index in range(plan.group_size):
            base = f"{plan.run}.{task.name}.{plan.harness.name}.{index}"
            if not is_session_name(f"{base}.99"):
                raise ValueError(f"{base!r} cannot name a session: choose another --run or shorter task names")
            name, again = base, 1
            while name in known and known[name].status == "open":
                abandoned.append(known[name])
                again += 1
                name = f"{base}.{again}"
            # A failed attempt counts as made: what broke it would break it again, and its group knows of it.
            if name not in known:
                left.append(Attempt(name=name, group=group, task=task, index=index))
    return left, abandoned


async def rollout(plan: Plan, store: Store, *, progress: Progress = lambda *_: None) -> list[Outcome]:
    """Run what is left of `plan`, at most `concurrency` harness processes at a time; in order of attempts.

    An attempt that goes wrong fails alone, with reward None. Cancelling ends the running harness processes; their
    sessions stay open, and the next rollout of this run makes them again.
    """
    reader = Reader(store)
    left, abandoned = attempts(plan, reader.sessions(prefix=f"{plan.run}."))
    with Recorder(store) as recorder:
        for session in abandoned:
            recorder.score(session.name, None, status="failed").result()
        # All of a group are opened before one runs: a group is complete when none of it is open.
        futures = [recorder.open_session(_new_session(plan, attempt)) for attempt in left]
        for future in futures:
            await asyncio.wrap_future(future)
        for attempt in left:
            progress(attempt, "waiting", None)
        gate = asyncio.Semaphore(plan.concurrency)

        async def run(attempt: Attempt) -> Outcome:
            async with gate:
                progress(attempt, "running", None)
                outcome = await _attempt(plan, attempt, recorder, store)
            progress(attempt, outcome.stage, outcome)
            return outcome

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run(attempt)) for attempt in left]
    return [task.result() for task in running]


def _new_session(plan: Plan, attempt: Attempt) -> NewSession:
    return NewSession(
        name=attempt.name,
        harness=plan.harness.name,
        harness_version=plan.harness.version,
        task=attempt.task.name,
        group=attempt.group,
        metadata={"run": plan.run, "index": attempt.index},
    )


async def _attempt(plan: Plan, attempt: Attempt, recorder: Recorder, store: Store) -> Outcome:
    began = time.monotonic()
    directory = (plan.directory / attempt.name).absolute()
    workspace = directory / "workspace"
    status: int | None = None
    score = Score(None)
    note = ""
    try:
        if directory.exists():
            shutil.rmtree(directory)
        (directory / "home").mkdir(parents=True)
        await asyncio.to_thread(prepare, attempt.task, workspace)
        status = await _run_harness(plan, attempt, directory, workspace)
        note = "" if status == 0 else f"ran longer than {plan.timeout:g} s" if status is None else f"exit {status}"
        score = await asyncio.to_thread(verify, attempt.task, workspace, VERIFY_SECONDS)
        if score.reward is None:
            note = f"not verified: {(score.log.strip().splitlines() or ['?'])[-1]}"
        broken = await asyncio.to_thread(_broken, store, attempt.name)
        if broken is not None:
            score, note = Score(None), broken
    except (TaskError, OSError) as error:
        note = str(error).splitlines()[0]
    finally:
        if not plan.keep_workspaces:
            for leftover in (workspace, directory / "home"):
                await asyncio.to_thread(shutil.rmtree, leftover, True)
    stage: Literal["done", "failed"] = "failed" if score.reward is None else "done"
    seconds = time.monotonic() - began
    ended = {"exit": status, "seconds": round(seconds, 3), "note": note, "log": str(directory / "harness.log")}
    recorder.open_session(NewSession(name=attempt.name, metadata=ended))
    await asyncio.wrap_future(recorder.score(attempt.name, score.reward, dict(score.parts), stage))
    return Outcome(attempt=attempt, stage=stage, reward=score.reward, exit=status, seconds=seconds, note=note)


async def _run_harness(plan: Plan, attempt: Attempt, directory: Path, workspace: Path) -> int | None:
    """Run the harness to its end and return its exit status; None when the time limit ended it."""
    key = session_key(plan.home, attempt.name)
    proxy = proxy_url(plan.proxy_host, plan.proxy_port, attempt.name, key)
    env = environment(
        plan.harness,
        program=plan.program,
        home=directory / "home",
        proxy=harness_environment(proxy, plan.bundle),
    )
    with (directory / "harness.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *plan.harness.argv(attempt.task.prompt, plan.program),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=workspace,
            env=env,
            start_new_session=True,
        )
    try:
        return await asyncio.wait_for(process.wait(), plan.timeout)
    except TimeoutError:
        processes.signal_group(process.pid, signal.SIGTERM)
        await asyncio.sleep(1.0)
        return None
    finally:
        # Also after a good end: a harness may leave a daemon behind.
        processes.signal_group(process.pid, signal.SIGKILL)
        await process.wait()


def _broken(store: Store, name: str) -> str | None:
    """Why the session says nothing about the policy; None when it does.

    A harness that never reached the model, or whose last call our side failed, did not fail at the task.
    """
    reader = Reader(store)
    turns = reader.turns(reader.session(name))
    if turns and turns[-1].status == "failed":
        return f"its last model call failed: {(turns[-1].error or {}).get('message', 'no message')}"
    if not any(turn.status in ("complete", "aborted") for turn in turns):
        return "no answered model call was recorded: see its log, and the proxy's"
    return None


def solved(outcomes: Sequence[Outcome]) -> float:
    """The share of the scored outcomes whose reward is positive; 0 when none is scored."""
    scored = [outcome.reward for outcome in outcomes if outcome.reward is not None]
    return sum(reward > 0 for reward in scored) / len(scored) if scored else 0.0
