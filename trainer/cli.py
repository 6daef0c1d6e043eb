"""The command `trainer`: thin readings of options; torch is imported only by the commands that need it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from certs import ca
from certs.files import TrustError, default_home
from replay.reader import Reader
from replay.store import DEFAULT_URL, Store, StoreError
from replay.writer import Recorder
from trainer import harness as harnesses
from trainer import serve as serving
from trainer.advantages import NothingToTrain
from trainer.export import read_note
from trainer.harness import HarnessError
from trainer.processes import ProcessFailed
from trainer.push import FP32_TOLERANCE, PushError, PushMismatch, WeightServer, next_version
from trainer.serve import ServeOptions, VllmMissing
from trainer.tasks import TaskError, load_tasks

# Must be in place before torch starts its threads and before transformers looks.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # beside a busy vLLM, spinning threads cost most of the speed
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

app = typer.Typer(
    name="trainer",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="""Roll out tasks with an unmodified harness, train on the record, push the weights.

\b
    trainer serve MODEL                   # terminal 1: vLLM, exact logprobs, reloadable weights
    tap up                                # terminal 2: the proxy that harnesses talk through
    trainer install mini-swe-agent        # terminal 3
    trainer rollout TASKS --run first     # sessions with rewards, in the record
    trainer grpo --model MODEL            # one update, pushed into the running vLLM
    trainer rollout TASKS --run second    # the same tasks, new weights
""",
)
CORES = os.cpu_count() or 2
LARGE_GAP = 0.5
console = Console()
errors = Console(stderr=True, soft_wrap=True)

StoreOption = Annotated[
    str, typer.Option("--store", envvar="HARNESSTAP_STORE", help="Database URL of the record.", show_default=True)
]
EngineOption = Annotated[str, typer.Option("--engine", envvar="HARNESSTAP_ENGINE", help="Where vLLM answers.")]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Say what went wrong, without a traceback, where the message is made for the user."""
    expected = (
        FileNotFoundError, FloatingPointError, HarnessError, NothingToTrain, ProcessFailed, PushError, PushMismatch,
        StoreError, TaskError, TrustError, ValueError, VllmMissing,
    )  # fmt: skip
    try:
        yield
    except expected as error:
        errors.print("[bold red]error:[/]", end=" ")
        errors.print(str(error), markup=False, highlight=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        errors.print("interrupted")
        raise typer.Exit(130) from None


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="Directory of a checkpoint, or a Hugging Face id.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8000,
    max_model_len: Annotated[int | None, typer.Option(help="Prompt + reply, tokens. Default: the model's own.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Default: float32 on CPU, vLLM's choice on a GPU.")] = None,
    served_name: Annotated[str | None, typer.Option("--served-model-name", help="Default: MODEL.")] = None,
    kv_cache_gib: Annotated[int, typer.Option(help="Memory for keys and values, on CPU.")] = 2,
) -> None:
    """Start vLLM the way this project needs it, on a GPU or on CPU.

    Logprobs are those of the distribution sampled from, defaults sample from the whole distribution, and the endpoints
    that reload weights are on. It listens on 127.0.0.1 only. What follows -- goes to vLLM.

    \b
        trainer serve Qwen/Qwen3-0.6B
        trainer serve runs/grpo/weights/3 --port 8001
        trainer serve MODEL --max-model-len 32768 -- --max-num-seqs 64
    """
    with plain_errors():
        options = ServeOptions(
            model=model,
            port=port,
            max_model_len=max_model_len,
            dtype=dtype,
            served_name=served_name,
            kv_cache_gib=kv_cache_gib,
            extra=serving.parse_extra([word for word in context.args if word != "--"]),
        )
        serving.replace_process(options)


@app.command()
def install(
    name: Annotated[str, typer.Argument(help="A harness of the list, e.g. mini-swe-agent.")],
    root: Annotated[Path, typer.Option(help="Where environments of harnesses live.")] = harnesses.DEFAULT_ROOT,
    harness_file: Annotated[Path, typer.Option(help="A TOML file like the shipped one.")] = harnesses.SHIPPED,
) -> None:
    """Install a harness, unmodified, in an environment of its own. Prints the path of its program.

    \b
        trainer install mini-swe-agent
    """
    with plain_errors():
        program = harnesses.install(harnesses.get(name, harness_file), root, say=errors.print)
        print(program)


@app.command()
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
    root: Annotated[Path, typer.Option(help="Where `trainer install` installed.")] = harnesses.DEFAULT_ROOT,
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


@app.command()
def grpo(
    model: Annotated[str, typer.Option(help="The policy to begin from: a directory or a Hugging Face id.")],
    store: StoreOption = DEFAULT_URL,
    engine: EngineOption = "http://127.0.0.1:8000",
    out: Annotated[Path, typer.Option(help="Weights, optimizer, metrics; a run there goes on.")] = Path("runs/grpo"),
    steps: Annotated[int, typer.Option(min=1, help="Updates; stops earlier when the groups run out.")] = 1,
    groups: Annotated[int | None, typer.Option(min=1, help="Groups with contrast a step. Default: all.")] = None,
    min_size: Annotated[int, typer.Option(min=2, help="Sessions a group must have.")] = 2,
    max_lag: Annotated[int | None, typer.Option(min=0, help="Leave out groups sampled this many versions ago.")] = None,
    learning_rate: Annotated[float, typer.Option("--lr", help="Of AdamW, constant.")] = 1e-6,
    loss: Annotated[Literal["dapo", "cispo"], typer.Option(help="TRL's loss type.")] = "dapo",
    scale: Annotated[Literal["std", "none", "batch"], typer.Option(help="What advantages are divided by.")] = "std",
    balance: Annotated[bool, typer.Option("--balance-sessions", help="Sessions weigh equally, however long.")] = False,
    purposes: Annotated[list[str] | None, typer.Option("--purpose", help="Turns to train. Default: main.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Cut rows after the last turn within this length.")] = None,
    token_budget: Annotated[int, typer.Option(help="Tokens of a micro-batch, padding included.")] = 8192,
    checkpointing: Annotated[bool, typer.Option(help="Recompute activations: half the memory, 30 % slower.")] = True,
    push: Annotated[bool, typer.Option(help="Push the weights into the running vLLM and verify them.")] = True,
    seed: Annotated[int, typer.Option(help="Of torch.")] = 0,
) -> None:
    """Train on the record's complete groups by GRPO, export, push into the running vLLM, verify.

    Takes groups that no step has used, oldest first. One reward and one advantage a session; each sampled token is
    trained once, against the logprob recorded when it was sampled.

    \b
        trainer grpo --model ./model
        trainer grpo --model ./model --steps 10 --groups 16 --lr 2e-6
        trainer grpo --model ./model --no-push
    """
    with plain_errors(), Store.open(store, create=False) as opened, Recorder(opened) as recorder, ExitStack() as stack:
        server = stack.enter_context(WeightServer(engine)) if push else None
        if server is not None:
            server.version()  # before minutes of training, not after
        from trainer.display import step_table
        from trainer.grpo import Settings
        from trainer.selection import Choice
        from trainer.training import TrainingRun

        settings = Settings(
            learning_rate=learning_rate,
            loss=loss,
            token_budget=token_budget,
            gradient_checkpointing=checkpointing,
            seed=seed,
        )
        choice = Choice(
            scale=scale,
            purposes=tuple(purposes or ["main"]),
            max_tokens=max_tokens,
            balance_sessions=balance,
        )
        quiet_libraries()
        training = TrainingRun.open(out, model, settings)
        for done in range(steps):
            try:
                report = training.step(
                    Reader(opened),
                    recorder,
                    choice=choice,
                    min_size=min_size,
                    max_groups=groups,
                    max_lag=max_lag,
                    server=server,
                    say=errors.print,
                )
            except NothingToTrain as nothing:
                if done == 0:
                    raise
                console.print(f"stopped after {done} steps: {nothing}", markup=False, highlight=False)
                break
            console.print(step_table(report))
            if report.metrics.logprob_gap_max > LARGE_GAP:
                errors.print(
                    "[yellow]note:[/] the recorded logprobs are not this policy's: the rows were sampled by other "
                    "weights (was vLLM serving another MODEL?) or in another precision"
                )
        console.print(f"weights: {training.weights}")


@app.command()
def push(
    weights: Annotated[Path, typer.Argument(help="A directory that `trainer grpo` wrote, or an untied checkpoint.")],
    engine: EngineOption = "http://127.0.0.1:8000",
    version: Annotated[str, typer.Option(help="Default: the one noted in WEIGHTS, or the next number.")] = "",
    tolerance: Annotated[float, typer.Option(help="Nats a logprob may differ; bfloat16: 0.25.")] = FP32_TOLERANCE,
    fallback: Annotated[Path | None, typer.Option(help="Weights to go back to when they do not verify.")] = None,
) -> None:
    """Load weights into the running vLLM, and verify them: logprobs must equal our own.

    Requests in flight go on under the new weights. Later turns carry the new version.

    \b
        trainer push runs/grpo/weights/3
    """
    with plain_errors():
        if not (weights / "config.json").is_file():
            raise FileNotFoundError(f"no checkpoint in {weights}: {weights / 'config.json'} does not exist")
        with WeightServer(engine) as server:
            current = server.version()
            from trainer.policy import load_policy, text_prompts, token_logprobs
            from trainer.push import push as push_weights

            quiet_libraries()
            policy = load_policy(weights)
            noted = read_note(weights).get("weight_version")
            if policy.tied and noted is None:
                raise ValueError(
                    f"{weights} shares its input and output embeddings, which vLLM reloads wrongly: push an export of "
                    "`trainer grpo` instead"
                )
            pushed = push_weights(
                server,
                weights,
                version or noted or next_version(current),
                prompts=text_prompts(policy.tokenizer),
                score=lambda ids, start: token_logprobs(policy.model, ids, start),
                tolerance=tolerance,
                fallback=fallback,
            )
        console.print(
            f"weights {pushed.version} (before: {current}) are served: paused {pushed.paused:.2f} s, logprobs equal "
            f"within {pushed.gap:.2g} nats over {pushed.probes} probes"
        )


def quiet_libraries() -> None:
    """No progress bars of transformers among our own output. Downloads have theirs, since they come before."""
    from transformers.utils import logging

    logging.disable_progress_bar()


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


if __name__ == "__main__":
    app()
