"""Rollouts of a program of our own: it reads the proxy variables, records a call, and does the task or not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from certs import isolation
from certs.harnesses import Harness
from replay.reader import Reader
from replay.records import NewSession
from replay.rewards import load
from replay.seeds import derived
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.recording import record_turn
from trainer import rollout as rollouts
from trainer.launcher import Plain
from trainer.plan import Budget, Outcome, Plan, Runner, attempts
from trainer.rollout import rollout
from trainer.tasks import Task, load_tasks
from trainer.tasks.sandbox import Sandbox, SandboxError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# A harness: told what to do by its prompt, it records a turn as the live side would for its session.
SCRIPT = f"""
import os, sys, time, subprocess
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, {str(ROOT)!r})
prompt = sys.argv[1]
proxy = urlsplit(os.environ["HTTPS_PROXY"])
Path(os.environ["STORE"]).with_name(proxy.username + ".env").write_text(repr(dict(os.environ)))
assert not any(Path.home().iterdir()), "HOME is not fresh"
if "silent" not in prompt:
    from replay.store import Store
    from replay.writer import Recorder
    from replay.records import NewSession
    from tests.trainer.recording import record_turn
    with Store.open("sqlite:///" + os.environ["STORE"]) as store, Recorder(store) as recorder:
        session = recorder.open_session(NewSession(name=proxy.username)).result()
        status, error = ("failed", dict(message="vLLM is down")) if "refused" in prompt else ("complete", None)
        record_turn(recorder, session, [1, 2], [3], status=status, error=error)
        if "spend" in prompt:
            record_turn(recorder, session, [1], [], status="failed", error=dict(message="quota", status=402))
if "hang" in prompt or "daemon" in prompt:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
if "hang" in prompt:
    time.sleep(600)
if "stray" in prompt:
    import socket
    socket.socket().connect_ex(("198.51.100.7", 443))
if proxy.username.endswith(".0") and "solve" in prompt:
    Path("answer.txt").write_text("42")
sys.exit(3 if "crash" in prompt else 0)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        yield store


def make_tasks(tmp_path: Path, **prompts: str) -> tuple[Task, ...]:
    for name, prompt in prompts.items():
        folder = tmp_path / "tasks" / name
        (folder / "files").mkdir(parents=True)
        (folder / "files" / "given.txt").write_text("given")
        (folder / "prompt.md").write_text(prompt)
        (folder / "verify.sh").write_text("test -f given.txt || exit 7\ntest -f answer.txt || exit 1\n")
    return tuple(load_tasks(tmp_path / "tasks"))


def fake_runner(tmp_path: Path, script: Path, name: str) -> Runner:
    harness = Harness(
        name=name,
        command=("python", str(script), "{task}"),
        env={"STORE": str(tmp_path / "tap.db"), "FAKE_KEY": "dummy"},
    )
    return Runner(harness, Path(sys.executable))


def make_plan(tmp_path: Path, tasks: tuple[Task, ...], *, timeout: float = 60.0, group_size: int = 2) -> Plan:
    (tmp_path / "home").mkdir(mode=0o700, exist_ok=True)
    script = tmp_path / "harness.py"
    script.write_text(SCRIPT)
    return Plan(
        run="r",
        tasks=tasks,
        runners=(fake_runner(tmp_path, script, "fake"),),
        group_size=group_size,
        concurrency=4,
        proxy_host="127.0.0.1",
        proxy_port=1,
        home=tmp_path / "home",
        bundle=tmp_path / "bundle.pem",
        directory=tmp_path / "runs",
        timeout=timeout,
    )


def by_name(outcomes: list[Outcome]) -> dict[str, Outcome]:
    return {outcome.attempt.name: outcome for outcome in outcomes}


needs_namespaces = pytest.mark.skipif(
    isolation.why_not() is not None, reason=f"no namespaces here: {isolation.why_not()}"
)


async def test_preload_is_for_the_harnesses_that_can(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    preloaded: list[tuple[str, ...]] = []

    class Counting(Plain):
        def __init__(self, program: Path, modules: tuple[str, ...], env: object, log: Path) -> None:
            preloaded.append(modules)

        async def __aenter__(self) -> Counting:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(rollouts, "Preloaded", Counting)
    plan = make_plan(tmp_path, make_tasks(tmp_path, t="solve"), group_size=1)
    [plain] = plan.runners
    python = Runner(replace(plain.harness, name="python", preload=("json",)), plain.program)
    outcomes = await rollout(replace(plan, runners=(python, plain), preload=True), store)
    assert {outcome.attempt.runner.harness.name: outcome.reward for outcome in outcomes} == {"python": 1.0, "fake": 1.0}
    assert preloaded == [("json",)]


def test_cells_can_be_left_out(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, make_tasks(tmp_path, t="solve", u="solve"), group_size=1)
    [fake] = plan.runners
    other = Runner(replace(fake.harness, name="other"), fake.program)
    plan = replace(plan, runners=(fake, other), without=frozenset({("t", "other"), ("u", "fake")}))
    left, _ = attempts(plan, [])
    assert [attempt.name for attempt in left] == ["r.t.fake.0", "r.u.other.0"]


@needs_namespaces
async def test_what_an_isolated_harness_tries_past_the_proxy(tmp_path: Path, store: Store) -> None:
    plan = replace(make_plan(tmp_path, make_tasks(tmp_path, t="stray and solve")), isolate=True)
    outcomes = await rollout(plan, store)
    assert [(o.reward, o.exit) for o in outcomes] == [(1.0, 0), (0.0, 0)]
    sessions = Reader(store).sessions(prefix="r.")
    assert [(session.meta or {})["direct"] for session in sessions] == [["198.51.100.7:443"]] * 2
    with pytest.raises(ValueError, match="choose one of the two"):
        replace(plan, preload=True)


@needs_namespaces
def test_a_sandbox_in_a_network_of_its_own(tmp_path: Path) -> None:
    try:
        sandbox = Sandbox.find()
    except SandboxError as error:
        pytest.skip(str(error))
    inside = sandbox.wrap(["bash", "-c", "exec 3<>/dev/tcp/198.51.100.7/443"], workspace=tmp_path, home=tmp_path)
    words = isolation.wrap(inside, report=tmp_path / "report.json")
    env = {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:1"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert "Connection refused" in done.stderr
    assert isolation.read_report(tmp_path / "report.json").direct == ("198.51.100.7:443",)


async def test_sessions_are_run_scored_and_grouped(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://users.own")
    plan = make_plan(tmp_path, make_tasks(tmp_path, easy="please solve", broken="crash now"))
    seen: list[tuple[str, str]] = []
    outcomes = by_name(await rollout(plan, store, progress=lambda a, stage, _: seen.append((a.name, stage))))
    assert {name: o.reward for name, o in outcomes.items()} == {
        "r.broken.fake.0": 0.0,
        "r.broken.fake.1": 0.0,
        "r.easy.fake.0": 1.0,
        "r.easy.fake.1": 0.0,
    }
    assert outcomes["r.broken.fake.0"].exit == 3
    reader = Reader(store)
    groups = {group.name: [s.reward for s in group.sessions] for group in reader.groups()}
    assert groups == {"r/broken/fake": [0.0, 0.0], "r/easy/fake": [1.0, 0.0]}
    session = reader.session("r.easy.fake.0")
    assert (session.harness, session.harness_version, session.task, session.status) == ("fake", None, "easy", "done")
    assert session.meta is not None
    assert session.meta["exit"] == 0
    assert [stage for name, stage in seen if name == "r.easy.fake.0"] == ["waiting", "running", "done"]
    env = (tmp_path / "r.easy.fake.0.env").read_text()
    assert "'FAKE_KEY': 'dummy'" in env
    assert "OPENAI_BASE_URL" not in env
    assert not (tmp_path / "runs" / "r.easy.fake.0" / "workspace").exists()
    assert (tmp_path / "runs" / "r.easy.fake.0" / "harness.log").exists()


async def test_what_is_not_the_policys_fault_has_no_reward(tmp_path: Path, store: Store) -> None:
    tasks = make_tasks(tmp_path, down="refused, do solve", silent="silent, do solve", unsure="solve")
    (tasks[2].path / "verify.sh").write_text("echo no idea; exit 5")
    outcomes = by_name(await rollout(make_plan(tmp_path, tasks, group_size=1), store))
    assert {o.stage for o in outcomes.values()} == {"failed"}
    assert {o.reward for o in outcomes.values()} == {None}
    assert "vLLM is down" in outcomes["r.down.fake.0"].note
    assert "no answered model call" in outcomes["r.silent.fake.0"].note
    assert "not verified" in outcomes["r.unsure.fake.0"].note
    assert all(session.reward is None and session.status == "failed" for session in Reader(store).sessions())


async def test_a_budget_that_is_used_up_is_a_chance_that_was_had(tmp_path: Path, store: Store) -> None:
    plan = make_plan(tmp_path, make_tasks(tmp_path, spent="spend, crash", late="spend, solve, crash"), group_size=1)
    outcomes = by_name(await rollout(plan, store))
    assert {name: (o.stage, o.reward) for name, o in outcomes.items()} == {
        "r.spent.fake.0": ("done", 0.0),
        "r.late.fake.0": ("done", 1.0),
    }
    assert {o.exit for o in outcomes.values()} == {3}


async def test_the_time_limit_ends_all_that_was_started(tmp_path: Path, store: Store) -> None:
    plan = make_plan(tmp_path, make_tasks(tmp_path, slow="hang"), timeout=8.0, group_size=1)
    [outcome] = await rollout(plan, store)
    assert (outcome.exit, outcome.reward) == (None, 0.0)  # it had its chance: that is a zero
    assert "longer than 8 s" in outcome.note
    assert await asyncio.to_thread(_all_gone, str(tmp_path))


async def test_a_daemon_left_behind_is_ended(tmp_path: Path, store: Store) -> None:
    [outcome] = await rollout(make_plan(tmp_path, make_tasks(tmp_path, one="daemon, solve"), group_size=1), store)
    assert (outcome.exit, outcome.reward) == (0, 1.0)
    assert await asyncio.to_thread(_all_gone, str(tmp_path))


def _all_gone(mark: str) -> bool:
    """Whether no process has `mark` in its environment or command, a moment after it was killed."""
    for _ in range(100):
        if not any(mark.encode() in _words(process) for process in Path("/proc").glob("[0-9]*")):
            return True
        time.sleep(0.05)
    return False


def _words(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    except OSError:  # gone meanwhile, or a zombie
        return b""


async def test_run_again_it_does_what_is_missing(tmp_path: Path, store: Store) -> None:
    tasks = make_tasks(tmp_path, easy="solve")
    plan = make_plan(tmp_path, tasks)
    with Recorder(store) as recorder:
        # An earlier rollout was killed: one session had begun, one is done.
        session = recorder.open_session(NewSession(name="r.easy.fake.0", group="r/easy/fake")).result()
        record_turn(recorder, session, [1], [2])
        recorder.open_session(NewSession(name="r.easy.fake.1", group="r/easy/fake")).result()
        recorder.score("r.easy.fake.1", 1.0, status="done").result()
    [outcome] = await rollout(plan, store)
    assert outcome.attempt.name == "r.easy.fake.0.2"
    [group] = Reader(store).groups()
    assert [s.name for s in group.sessions] == ["r.easy.fake.1", "r.easy.fake.0.2"]
    assert [s.name for s in group.failed] == ["r.easy.fake.0"]
    assert await rollout(plan, store) == []


async def test_cancelled_rollouts_leave_no_process_and_can_go_on(tmp_path: Path, store: Store) -> None:
    plan = make_plan(tmp_path, make_tasks(tmp_path, slow="hang"), group_size=1)
    task = asyncio.create_task(rollout(plan, store))
    await asyncio.to_thread(_appears, tmp_path / "r.slow.fake.0.env")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    left, abandoned = attempts(plan, Reader(store).sessions(prefix="r."))
    assert [a.name for a in left] == ["r.slow.fake.0.2"]
    assert [s.name for s in abandoned] == ["r.slow.fake.0"]
    assert await asyncio.to_thread(_all_gone, str(tmp_path))


def _appears(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)


def test_names_that_cannot_be_sessions(tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path, easy="solve")
    plan = make_plan(tmp_path, tasks)
    with pytest.raises(ValueError, match="dots"):
        Plan(**{**{f: getattr(plan, f) for f in Plan.__slots__}, "run": "a.b"})
    spaced = Plan(**{**{f: getattr(plan, f) for f in Plan.__slots__}, "run": "a b"})
    with pytest.raises(ValueError, match="cannot name a session"):
        attempts(spaced, [])


async def test_several_harnesses_share_the_tasks_and_reward_files_complete_a_group(
    tmp_path: Path, store: Store
) -> None:
    plan = make_plan(tmp_path, make_tasks(tmp_path, a="solve", b="solve", c="solve"))
    two = tuple(fake_runner(tmp_path, tmp_path / "harness.py", name) for name in ("one", "two"))
    (tmp_path / "bonus.py").write_text("def reward(group): return [{'calls': 0.5 * r.turns * r.task} for r in group]")
    bonus = load(str(tmp_path / "bonus.py"))
    shared = replace(plan, runners=two, assignment="rotate", rewards=(bonus,))
    assert [(t.name, r.harness.name) for t, r in shared.cells()] == [("a", "one"), ("b", "two"), ("c", "one")]
    assert len(replace(shared, assignment="all").cells()) == 6
    await rollout(shared, store)
    groups = Reader(store).groups(min_size=2)
    assert {g.name: [s.reward for s in g.sessions] for g in groups} == {
        "r/a/one": [1.5, 0.0],
        "r/b/two": [1.5, 0.0],
        "r/c/one": [1.5, 0.0],
    }
    assert groups[0].sessions[0].reward_parts == {"task": 1.0, "+calls": 0.5}


async def test_a_budget_travels_with_the_session(tmp_path: Path, store: Store) -> None:
    plan = replace(make_plan(tmp_path, make_tasks(tmp_path, a="solve")), budget=Budget(turns=3, tokens=500))
    await rollout(plan, store)
    [first, *_] = Reader(store).sessions()
    assert (first.meta or {})["budget"] == {"turns": 3, "tokens": 500}


async def test_seeds_of_sessions_follow_from_the_plans(tmp_path: Path, store: Store) -> None:
    plan = replace(make_plan(tmp_path, make_tasks(tmp_path, a="solve", b="solve")), seed=3)
    with Recorder(store) as recorder:
        recorder.open_session(NewSession(name="r.a.fake.0", group="r/a/fake")).result()  # of an earlier, killed run
    await rollout(plan, store)
    seeds = {s.name: (s.meta or {}).get("seed") for s in Reader(store).sessions() if s.status == "done"}
    assert seeds["r.a.fake.0.2"] == derived(3, "r.a.fake.0"), "sampled as it would have been without the kill"
    assert seeds["r.b.fake.1"] == derived(3, "r.b.fake.1")
    assert len(set(seeds.values())) == len(seeds) == 4
    [left, *_], _ = attempts(replace(plan, seed=4, run="other"), ())
    assert left.seed == derived(4, "other.a.fake.0")
    [left, *_], _ = attempts(replace(plan, seed=None, run="other"), ())
    assert left.seed is None
