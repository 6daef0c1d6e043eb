"""Rollouts: an unmodified harness runs a task behind the proxy, several times; each run is a session with a reward.

A session gets a fresh HOME and a fresh workspace, its own key for the proxy, and a time limit that ends everything it
started. What the model did is recorded by the proxy; here the session is opened, run and scored.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from certs import isolation
from certs.environment import harness_environment, proxy_url
from certs.harnesses import environment
from certs.harnesses.launch import leftovers
from certs.keys import session_key
from replay.groups import Group
from replay.reader import Reader
from replay.records import NewSession, SessionStatus
from replay.rewards import again
from replay.schema import Turn
from replay.store import Store
from replay.writer import Recorder
from trainer import processes
from trainer.launcher import Launcher, Plain, Preloaded
from trainer.plan import Attempt, Outcome, Plan, Progress, Runner, attempts
from trainer.tasks import Score, TaskError
from trainer.tasks.sandbox import needs_of

BUDGET_SPENT = 402
"""The proxy's HTTP status for a call beyond its session's budget."""


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
        running_of = Counter(attempt.group for attempt in left)

        async def run(attempt: Attempt) -> Outcome:
            async with gate:
                progress(attempt, "running", None)
                outcome = await _attempt(plan, attempt, launchers[attempt.runner.harness.name], store)
            running_of[attempt.group] -= 1
            await _record(plan, outcome, recorder, reader, last=running_of[attempt.group] == 0)
            progress(attempt, outcome.stage, outcome)
            return outcome

        async with AsyncExitStack() as stack:
            runners = {attempt.runner.harness.name: attempt.runner for attempt in left}
            launchers = {name: await _launcher(plan, runner, stack) for name, runner in runners.items()}
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(run(attempt)) for attempt in left]
    return [task.result() for task in running]


async def _launcher(plan: Plan, runner: Runner, stack: AsyncExitStack) -> Launcher:
    harness = runner.harness
    if not plan.preload or not harness.preload:
        return Plain()
    home = (plan.directory / f"preload-{harness.name}").absolute()
    home.mkdir(parents=True, exist_ok=True)
    # No session's key: what this process imports, every session shares.
    proxy = harness_environment(proxy_url(plan.proxy_host, plan.proxy_port), plan.bundle)
    env = environment(harness, program=runner.program, home=home, proxy=proxy)
    return await stack.enter_async_context(Preloaded(runner.program, harness.preload, env, home / "preload.log"))


def _new_session(plan: Plan, attempt: Attempt) -> NewSession:
    return NewSession(
        name=attempt.name,
        harness=attempt.runner.harness.name,
        harness_version=attempt.runner.harness.version,
        task=attempt.task.name,
        group=attempt.group,
        metadata={
            "run": plan.run,
            "index": attempt.index,
            **plan.budget.metadata(),
            **({} if attempt.seed is None else {"seed": attempt.seed}),
        },
    )


async def _attempt(plan: Plan, attempt: Attempt, launcher: Launcher, store: Store) -> Outcome:
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
        await asyncio.to_thread(attempt.task.prepare, workspace, plan.sandbox)
        status = await _run_harness(plan, attempt, launcher, directory, workspace)
        note = (
            ""
            if status == 0
            else f"ran longer than {_seconds(plan, attempt):g} s"
            if status is None
            else f"exit {status}"
        )
        score = await asyncio.to_thread(attempt.task.verify, workspace, plan.sandbox)
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
    return Outcome(
        attempt=attempt,
        stage="failed" if score.reward is None else "done",
        reward=score.reward,
        parts=score.parts,
        exit=status,
        seconds=time.monotonic() - began,
        note=note,
        log=directory / "harness.log",
    )


async def _record(plan: Plan, outcome: Outcome, recorder: Recorder, reader: Reader, *, last: bool) -> None:
    """Score the session of an attempt that has ended; with the last of its group, add what reward files give."""
    name = outcome.attempt.name
    status: SessionStatus = "failed" if outcome.stage == "failed" else "done"
    direct = await asyncio.to_thread(_direct, outcome)
    ended = {
        **({} if direct is None else {"direct": direct}),
        "exit": outcome.exit, "seconds": round(outcome.seconds, 3), "note": outcome.note, "log": str(outcome.log)
    }  # fmt: skip
    recorder.open_session(NewSession(name=name, metadata=ended))
    reward, parts = outcome.reward, dict(outcome.parts)
    if plan.rewards and last and outcome.attempt.group is not None:
        # Still open, so that no trainer takes the group before its rewards are complete.
        await asyncio.wrap_future(recorder.score(name, reward, parts))
        members = [s for s in reader.sessions(group=outcome.attempt.group) if s.status == "done" or s.name == name]
        shaped = again(reader, recorder, [Group(outcome.attempt.group, tuple(members), ())], plan.rewards)
        mine = next(one for one in shaped if one.session == name)
        reward, parts = mine.reward, mine.parts or parts
    await asyncio.wrap_future(recorder.score(name, reward, parts, status))


def _direct(outcome: Outcome) -> list[str] | None:
    """Connections that an isolated harness tried past the proxy; None where nobody watched to the end."""
    report = None if outcome.log is None else outcome.log.with_name("network.json")
    if report is None or not report.exists():
        return None
    return list(isolation.read_report(report).direct)


def _seconds(plan: Plan, attempt: Attempt) -> float:
    """How long the harness may work: what the task gives it, but no longer than the plan does."""
    return min(plan.timeout, attempt.task.seconds or plan.timeout)


async def _run_harness(
    plan: Plan, attempt: Attempt, launcher: Launcher, directory: Path, workspace: Path
) -> int | None:
    """Run the harness to its end and return its exit status; None when the time limit ended it."""
    key = session_key(plan.home, attempt.name)
    proxy = proxy_url(plan.proxy_host, plan.proxy_port, attempt.name, key)
    harness, program = attempt.runner.harness, attempt.runner.program
    env = environment(
        harness,
        program=program,
        home=directory / "home",
        proxy=harness_environment(proxy, plan.bundle),
    )
    argv = harness.argv(attempt.task.prompt, program)
    if plan.sandbox is not None:
        sandbox = replace(plan.sandbox, readable=(*plan.sandbox.readable, *needs_of(program), plan.bundle))
        argv = sandbox.wrap(argv, workspace=workspace, home=directory / "home", inside=attempt.task.inside)
    if plan.isolate:
        argv = isolation.wrap(argv, report=directory / "network.json")
    process = await launcher.start(argv, env=env, cwd=workspace, log=directory / "harness.log")
    try:
        return await asyncio.wait_for(process.wait(), _seconds(plan, attempt))
    except TimeoutError:
        processes.signal_group(process.pid, signal.SIGTERM)
        await asyncio.sleep(1.0)
        return None
    finally:
        # Also after a good end: a harness may leave a daemon behind, in its own process group or in another.
        processes.signal_group(process.pid, signal.SIGKILL)
        await process.wait()
        for pid in leftovers(directory / "home"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _broken(store: Store, name: str) -> str | None:
    """Why the session says nothing about the policy; None when it does.

    A harness that never reached the model, or whose last call our side failed, did not fail at the task. One that had
    used up its budget had its chance, like one that ran out of time.
    """
    reader = Reader(store)
    turns = reader.turns(reader.session(name))
    if turns and turns[-1].status == "failed" and not _spent(turns[-1]):
        return f"its last model call failed: {(turns[-1].error or {}).get('message', 'no message')}"
    if not any(turn.status in ("complete", "aborted") for turn in turns):
        return "no answered model call was recorded: see its log, and the proxy's"
    return None


def _spent(turn: Turn) -> bool:
    """Whether the call was refused because the session's budget was used up."""
    return (turn.error or {}).get("status") == BUDGET_SPENT


def solved(outcomes: Sequence[Outcome]) -> float:
    """The share of the scored outcomes whose reward is positive; 0 when none is scored."""
    scored = [outcome.reward for outcome in outcomes if outcome.reward is not None]
    return sum(reward > 0 for reward in scored) / len(scored) if scored else 0.0
