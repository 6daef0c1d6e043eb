"""`trainer grpo`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from replay.reader import Reader
from replay.store import DEFAULT_URL, Store
from replay.writer import Recorder
from trainer import ranks
from trainer.advantages import NothingToTrain
from trainer.asynchronous.check import check_machine, check_model
from trainer.commands.common import (
    EngineOption,
    PushOption,
    ReportOption,
    StoreOption,
    console,
    errors,
    plain_errors,
    quiet_libraries,
)
from trainer.following import Following, WaitingLine, stoppable
from trainer.policy import find_checkpoint
from trainer.push import Reload, WeightServer, choose

if TYPE_CHECKING:  # torch comes with them
    from trainer.asynchronous.run import AsyncTraining
    from trainer.training import StepReport

LARGE_GAP = 0.5


def grpo(
    model: Annotated[str, typer.Option(help="The policy to begin from: a directory or a Hugging Face id.")],
    store: StoreOption = DEFAULT_URL,
    engine: EngineOption = "http://127.0.0.1:8000",
    out: Annotated[Path, typer.Option(help="Weights, optimizer, metrics; a run there goes on.")] = Path("runs/grpo"),
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Updates; stops earlier when the groups run out. Default: 1; with --follow no end."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for groups as rollouts complete them.")] = False,
    idle: Annotated[
        float | None, typer.Option(min=0, help="With --follow: end after so many seconds without a new group.")
    ] = None,
    asynchronous: Annotated[
        bool, typer.Option("--async", help="Like --follow, in TRL's AsyncGRPOTrainer: packs what sessions share. GPU.")
    ] = False,
    temperature: Annotated[float, typer.Option(min=0.01, help="With --async: what the rollouts sample at.")] = 1.0,
    groups: Annotated[int | None, typer.Option(min=1, help="Groups with contrast a step. Default: all.")] = None,
    min_size: Annotated[int, typer.Option(min=2, help="Sessions a group must have.")] = 2,
    max_lag: Annotated[int | None, typer.Option(min=0, help="Leave out groups sampled more versions ago.")] = None,
    learning_rate: Annotated[float, typer.Option("--lr", help="Of AdamW, constant.")] = 1e-6,
    loss: Annotated[Literal["dapo", "cispo"], typer.Option(help="TRL's loss type.")] = "dapo",
    scale: Annotated[Literal["std", "none", "batch"], typer.Option(help="What advantages are divided by.")] = "std",
    balance: Annotated[bool, typer.Option("--balance-sessions", help="Sessions weigh equally, however long.")] = False,
    purposes: Annotated[list[str] | None, typer.Option("--purpose", help="Turns to train. Default: main.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Cut rows after the last turn within this length.")] = None,
    token_budget: Annotated[int, typer.Option(help="Tokens of a micro-batch, padding included.")] = 8192,
    lora_rank: Annotated[int | None, typer.Option(min=1, help="Train LoRA adapters.")] = None,
    checkpointing: Annotated[bool, typer.Option(help="Recompute activations: half the memory, 30 % slower.")] = True,
    report_to: ReportOption = "none",
    push: Annotated[bool, typer.Option(help="Push the weights into the running vLLM and verify them.")] = True,
    push_by: PushOption = None,
    seed: Annotated[int, typer.Option(help="Of torch.")] = 0,
) -> None:
    """Train on the record's complete groups by GRPO, export, push into the running vLLM, verify.

    Takes groups that no step has used, oldest first. One reward and one advantage a session; each sampled token is
    trained once, against the logprob recorded when it was sampled.

    \b
        trainer grpo --model ./model
        trainer grpo --model ./model --steps 10 --groups 16 --lr 2e-6
        trainer grpo --model ./model --no-push
        trainer grpo --model ./model --lora-rank 16 --push-by lora
        trainer grpo --model ./model --follow --groups 8 --max-lag 2 --idle 600
        trainer grpo --model ./model --async --groups 8 --max-lag 2
        accelerate launch --multi_gpu --num_processes 4 -m trainer.cli grpo --model ./model
        accelerate launch --use_fsdp --fsdp_version 2 --num_processes 4 -m trainer.cli grpo --model ./model
    """
    follow = follow or asynchronous
    if idle is not None and not follow:
        raise typer.BadParameter("it says how long --follow waits: give --follow, too", param_hint="--idle")
    if push_by is not None and not push:
        raise typer.BadParameter("it says how weights are pushed, and --no-push that none are", param_hint="--push-by")
    if asynchronous:
        with plain_errors():  # outside ranks.joined: one process only
            check_machine()
            check_model(find_checkpoint(model))
    with ranks.joined(), plain_errors(), ExitStack() as stack:
        if ranks.rank() == 0:  # the others know nothing of the record and of vLLM: see trainer.ranks
            opened = stack.enter_context(Store.open(store, create=False))
            recorder = stack.enter_context(Recorder(opened))
            server = stack.enter_context(WeightServer(engine)) if push else None
            # Before minutes of training, not after.
            way = Reload() if server is None else choose(push_by, server, rank=lora_rank)
        from trainer import reporting
        from trainer.adapters import Lora
        from trainer.display import step_table
        from trainer.grpo import Settings, stand_by
        from trainer.intake import Intake
        from trainer.selection import Choice
        from trainer.training import TrainingRun

        settings = Settings(
            learning_rate=learning_rate,
            loss=loss,
            token_budget=token_budget,
            gradient_checkpointing=checkpointing,
            seed=seed,
            lora=None if lora_rank is None else Lora(rank=lora_rank),
        )
        choice = Choice(
            scale=scale,
            purposes=tuple(purposes or ["main"]),
            max_tokens=max_tokens,
            balance_sessions=balance,
        )
        intake = Intake(choice=choice, min_size=min_size, max_groups=groups, max_lag=max_lag)
        quiet_libraries()
        if ranks.rank() > 0:
            stand_by(lambda: TrainingRun.open(out, model, settings).learner)
            return
        reporting.check(report_to)
        trl: AsyncTraining | None = None
        if asynchronous:
            from trainer.asynchronous import run as asynchronous_run

            trl = stack.enter_context(
                asynchronous_run.AsyncTraining.open(
                    out, model, settings, temperature=temperature, max_lag=max_lag, steps=steps
                )
            )
        training = TrainingRun.open(out, model, settings) if trl is None else trl.run
        training.report = stack.enter_context(reporting.reporting(report_to, out, training.learner))
        training.way = way
        if server is not None and (late := training.catch_up(server)) is not None:
            console.print(
                f"weights {late.version}, which were never pushed, are served now: equal within {late.gap:.2g}"
            )
        line = stack.enter_context(WaitingLine(errors))
        following: Following | None = None
        if follow:
            following = Following(
                opened,
                wanted=groups or 1,
                min_size=min_size,
                idle=idle,
                stop=stack.enter_context(stoppable(errors.print)),
                waiting=line,
                waited=line.clear,
                say=errors.print,
            )
        done = 0

        def reported(report: StepReport) -> None:
            nonlocal done
            done += 1
            console.print(step_table(report))
            if report.metrics.logprob_gap_max > LARGE_GAP:
                errors.print(
                    "[yellow]note:[/] the recorded logprobs are not this policy's: the rows were sampled by other "
                    "weights (was vLLM serving another MODEL?) or in another precision"
                )

        ended: str | None = None
        if trl is not None and following is not None:
            ended = trl.train(
                opened,
                recorder,
                following=following,
                intake=intake,
                server=server,
                reported=reported,
                say=errors.print,
            )
        last = steps if follow or steps is not None else 1
        while trl is None and (last is None or done < last):
            if following is not None:
                ended = following.wait(training.fresh(None if server is None else server.version(), intake))
                if ended is not None:
                    break
            try:
                report = training.step(Reader(opened), recorder, intake, server=server, say=errors.print)
            except NothingToTrain as nothing:
                if done == 0 or follow:
                    raise
                console.print(f"stopped after {done} steps: {nothing}", markup=False, highlight=False)
                break
            reported(report)
        if ended is not None:
            console.print(f"ended after {done} steps: {ended}", markup=False, highlight=False)
        if following is not None and (left_out := following.summary()) is not None:
            console.print(left_out, highlight=False)
        console.print(f"weights: {training.weights}")
