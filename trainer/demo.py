"""`python -m trainer.demo [MODEL]`: the whole loop once, on real parts, with nothing to prepare.

vLLM serves a model, `tap up` stands before it, an unmodified mini-swe-agent works on small shell tasks behind
HTTPS_PROXY, one GRPO step trains on the record, the weights go into the running vLLM, the tasks run again.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.rule import Rule

from certs import harnesses
from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder
from trainer import processes
from trainer.advantages import NothingToTrain
from trainer.commands.common import CORES, plain_errors, quiet_libraries
from trainer.display import RolloutView, before_and_after, outcome_line, sessions_table, step_table
from trainer.local import LocalStack
from trainer.plan import Outcome, Plan, Runner
from trainer.policy import find_checkpoint
from trainer.processes import ProcessFailed
from trainer.push import WeightServer
from trainer.rollout import rollout
from trainer.tasks import load_tasks

ROOT = Path(__file__).resolve().parent
TINY = ROOT / "tiny" / "checkpoint"
TASKS = ROOT / "tasksets" / "demo"
RUNS = Path("runs/demo")
HARNESS = "mini-swe-agent"
console = Console()


@dataclass(slots=True)
class Demo:
    """One run of the demo in `directory`; `stack` ends every process that it starts."""

    model: str
    tasks: Path
    directory: Path
    group_size: int
    concurrency: int
    learning_rate: float
    stack: ExitStack
    engine: str = ""
    began: float = field(default_factory=time.monotonic)
    local: LocalStack = field(init=False)

    def __post_init__(self) -> None:
        # A record, a CA and a secret of the demo alone: nothing of the user's own is touched.
        self.local = LocalStack(
            model=self.model,
            store_url=f"sqlite:///{self.directory / 'harnesstap.db'}",
            home=RUNS / "home",
            logs=self.logs,
            stack=self.stack,
            say=self.say,
            engine=self.engine,
        )

    @property
    def logs(self) -> Path:
        """Where vLLM, the proxy and the installer write."""
        return self.directory / "logs"

    def say(self, text: str) -> None:
        """A line of what happens, with the seconds since the start."""
        console.print(f"[dim]{time.monotonic() - self.began:4.0f} s[/]  {text}", highlight=False)

    def start(self) -> Path:
        """Start vLLM and the proxy and install the harness, all at once; return the harness's program."""
        with ThreadPoolExecutor(2) as pool:
            pool.submit(_import_training)
            installing: Future[Path] = pool.submit(
                harnesses.install, harnesses.get(HARNESS), log=self.logs / "install.log", say=self.say
            )
            self.local.start()
            return installing.result()

    def roll_out(self, run: str, program: Path, store: Store) -> list[Outcome]:
        """Every task `group_size` times, with live progress; raises ProcessFailed when no session could be scored."""
        plan = self.local.through(
            Plan(
                run=run,
                tasks=tuple(load_tasks(self.tasks)),
                runners=(Runner(harnesses.get(HARNESS), program),),
                group_size=self.group_size,
                concurrency=self.concurrency,
                directory=self.directory / run,
                timeout=120.0,
            )
        )
        with RolloutView(console, f"{HARNESS}, {run}") as view:
            outcomes = asyncio.run(self.local.during(rollout(plan, store, progress=view)))
        failed = [outcome for outcome in outcomes if outcome.stage == "failed"]
        for outcome in failed[:3]:
            console.print(outcome_line(outcome), style="yellow", markup=False)
        if len(failed) == len(outcomes):
            log = failed[0].log or self.logs
            raise ProcessFailed(f"no session of {run} could be scored\n{self.local.explain(log)}")
        return outcomes

    def train(self, reader: Reader, recorder: Recorder, server: WeightServer) -> str | None:
        """One GRPO step, pushed and verified; the new weight version, or None when no group had contrast."""
        from trainer.grpo import Settings
        from trainer.intake import Intake
        from trainer.training import TrainingRun

        settings = Settings(learning_rate=self.learning_rate)
        training = TrainingRun.open(self.directory / "grpo", self.model, settings)
        try:
            report = training.step(reader, recorder, Intake(), server=server, say=self.say)
        except NothingToTrain as nothing:
            console.print(f"\nNo step this time: {nothing}\n", markup=False, highlight=False)
            return None
        console.print(step_table(report))
        return report.version


def run(demo: Demo) -> None:
    """The demo, from start to what to type next."""
    program = demo.start()
    with (
        Store.open(demo.local.store_url) as store,
        Recorder(store) as recorder,
        WeightServer(demo.local.engine) as server,
    ):
        reader = Reader(store)
        server.set_version("0")
        first = demo.roll_out("before", program, store)
        console.print(sessions_table(reader, "before.", "Sessions before the update"))
        demo.say("one GRPO step, from the record")
        version = demo.train(reader, recorder, server)
        rounds = [("before", "0", first)]
        if version is not None:
            rounds.append(("after", version, demo.roll_out("after", program, store)))
            console.print(sessions_table(reader, "after.", "Sessions after it"))
        console.print(before_and_after(rounds))
        shown = next((o.attempt.name for o in rounds[-1][2] if o.reward), first[0].attempt.name)
        demo.say("done")
        console.print(next_steps(demo.local.store_url, shown), highlight=False)


def next_steps(store: str, session: str) -> str:
    """What to type after the demo."""
    return f"""
One update of a model this small is a proof of the plumbing, not of learning: `trainer grpo --steps` goes on.
Look at what was recorded:

    [bold]export PATH=$PWD/.venv/bin:$PWD/.harness/mini-swe-agent/bin:$PATH[/]
    [bold]export HARNESSTAP_STORE={store}[/]
    [bold]replay list[/]
    [bold]replay show {session}[/]

Then your own harness, model and tasks:

    [bold]trainer serve MODEL[/]              in one terminal
    [bold]tap up[/]                           in another
    [bold]tap run -- claude -p "..."[/]       and a third: any harness, unmodified
    [bold]trainer --help[/]                   rollouts and training
"""


def _import_training() -> None:
    """Half a minute of importing torch and TRL, best spent while vLLM starts."""
    importlib.import_module("trainer.training")
    quiet_libraries()


def main(
    model: Annotated[str, typer.Argument(envvar="MODEL", help="Checkpoint or Hugging Face id.")] = str(TINY),
    tasks: Annotated[Path, typer.Option(help="A folder of tasks.")] = TASKS,
    group_size: Annotated[int, typer.Option("--group-size", "-g", min=2, help="Sessions a task.")] = 4,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Processes at a time.")] = 2 * CORES,
    learning_rate: Annotated[float, typer.Option("--lr", help="Of the one step.")] = 1e-4,
    engine: Annotated[str, typer.Option(help="A vLLM that serves MODEL already (`trainer serve MODEL`).")] = "",
) -> None:
    """The whole loop once: rollouts, one GRPO step, push, rollouts. About four minutes on two cores."""
    with plain_errors(), processes.ended_by_sigterm(), ExitStack() as stack:
        if model == str(TINY) and not (TINY / "config.json").is_file():
            raise FileNotFoundError(f"the tiny model is not at {TINY}: see trainer/tiny/ on how it is made")
        checkpoint = find_checkpoint(model)
        directory = RUNS / time.strftime("%Y%m%d-%H%M%S")
        directory.mkdir(parents=True)
        console.print(Rule("harnesstap"))
        demo = Demo(
            model=str(checkpoint),
            tasks=tasks,
            directory=directory,
            group_size=group_size,
            concurrency=concurrency,
            learning_rate=learning_rate,
            stack=stack,
            engine=engine,
        )
        demo.say(f"logs and record in {directory}")
        run(demo)


if __name__ == "__main__":
    typer.run(main)
