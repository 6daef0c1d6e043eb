"""`trainer grpo`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from replay.reader import Reader
from replay.store import DEFAULT_URL, Store
from replay.writer import Recorder
from trainer.advantages import NothingToTrain
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
from trainer.push import Reload, WeightServer, choose

LARGE_GAP = 0.5


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
    """
    with plain_errors(), Store.open(store, create=False) as opened, Recorder(opened) as recorder, ExitStack() as stack:
        server = stack.enter_context(WeightServer(engine)) if push else None
        # Before minutes of training, not after.
        way = Reload() if server is None else choose(push_by, server, rank=lora_rank)
        from trainer import reporting
        from trainer.adapters import Lora
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
            lora=None if lora_rank is None else Lora(rank=lora_rank),
        )
        choice = Choice(
            scale=scale,
            purposes=tuple(purposes or ["main"]),
            max_tokens=max_tokens,
            balance_sessions=balance,
        )
        reporting.check(report_to)
        quiet_libraries()
        training = TrainingRun.open(out, model, settings)
        training.report = stack.enter_context(reporting.reporting(report_to, out, training.learner))
        training.way = way
        if server is not None and (late := training.catch_up(server)) is not None:
            console.print(
                f"weights {late.version}, which were never pushed, are served now: equal within {late.gap:.2g}"
            )
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
