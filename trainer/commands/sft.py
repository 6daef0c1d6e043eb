"""`trainer sft`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from replay.reader import Reader
from replay.store import DEFAULT_URL, Store
from trainer import ranks
from trainer.commands.common import ReportOption, StoreOption, console, errors, plain_errors, quiet_libraries


def sft(
    model: Annotated[str, typer.Option(help="The student: a directory or a Hugging Face id.")],
    store: StoreOption = DEFAULT_URL,
    out: Annotated[Path, typer.Option(help="Where the taught model is written.")] = Path("runs/sft"),
    above: Annotated[float, typer.Option(help="Imitate sessions whose reward is above this.")] = 0.0,
    run: Annotated[str | None, typer.Option(help="Only sessions of this `trainer rollout --run`.")] = None,
    per_task: Annotated[int | None, typer.Option(min=1, help="The first N of each task and harness.")] = None,
    harnesses: Annotated[list[str] | None, typer.Option("--harness", help="Only of these; may be repeated.")] = None,
    purposes: Annotated[list[str] | None, typer.Option("--purpose", help="Turns to imitate. Default: main.")] = None,
    rerender: Annotated[
        Literal["auto", "always", "never"],
        typer.Option(help="Render replies anew for the student; auto: where its tokenizer or template is another."),
    ] = "auto",
    epochs: Annotated[float, typer.Option(help="Passes over the examples.")] = 2.0,
    learning_rate: Annotated[float, typer.Option("--lr", help="Peak; warm-up, then cosine.")] = 1e-5,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples a step.")] = 8,
    micro_batch: Annotated[int, typer.Option(min=1, help="Examples at a time.")] = 1,
    max_tokens: Annotated[int | None, typer.Option(help="Cut after the last reply within this length.")] = None,
    lora_rank: Annotated[
        int | None, typer.Option(min=1, help="Train adapters of this rank; merged at the end.")
    ] = None,
    checkpointing: Annotated[bool, typer.Option(help="Recompute activations: half the memory, 30 % slower.")] = True,
    report_to: ReportOption = "none",
    seed: Annotated[int, typer.Option(help="Of torch and of the order of examples.")] = 0,
) -> None:
    """Teach a model by the sessions that solved their task: its own, or a teacher's.

    A session is one example, with the loss on what was sampled. Another model's sessions are rendered again by the
    student's own chat template. The result is a plain checkpoint: `trainer serve` it, or `trainer push` it.

    \b
        trainer sft --model ./model --run first
        trainer sft --model ./student --run teacher --per-task 1 --lr 3e-6
        accelerate launch --multi_gpu --num_processes 4 -m trainer.cli sft --model ./model
    """
    with ranks.joined(), plain_errors(), ExitStack() as stack:
        if ranks.rank() > 0:
            from trainer.sft import stand_by

            stand_by(model)
            return
        opened = stack.enter_context(Store.open(store, create=False))
        from trainer import reporting
        from trainer.adapters import Lora
        from trainer.imitation import Demonstrations, demonstrations
        from trainer.kept import keep
        from trainer.policy import find_checkpoint, load_policy
        from trainer.sft import SftSettings, teach
        from trainer.students import examples_for

        reporting.check(report_to)
        quiet_libraries()
        reader = Reader(opened)
        choice = Demonstrations(
            above=above,
            per_task=per_task,
            prefix=None if run is None else f"{run}.",
            harnesses=tuple(harnesses or ()),
            purposes=tuple(purposes or ["main"]),
            max_tokens=max_tokens,
        )
        policy = load_policy(find_checkpoint(model))
        sessions = demonstrations(reader, choice)
        found = examples_for(policy, reader, sessions, choice, rerender)
        for reason, tokens in found.left_out.most_common():
            errors.print(f"left out: {tokens:,} sampled tokens ({reason})", markup=False, highlight=False)
        if not found.examples:
            raise ValueError(
                f"nothing to imitate: {len(sessions)} sessions are done with a reward above {above:g}, and none of "
                "their turns can be used"
            )
        errors.print(f"{len(found.examples)} examples, {found.tokens:,} tokens, from {len(sessions)} sessions")
        settings = SftSettings(
            epochs=epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            micro_batch=micro_batch,
            gradient_checkpointing=checkpointing,
            lora=None if lora_rank is None else Lora(rank=lora_rank),
            reports=report_to,
            seed=seed,
        )
        report = teach(policy, found.examples, settings, logs=out / "logs")
        weights = keep(
            policy,
            out / "weights",
            opened,
            version="sft",
            trained_from=model,
            query={"method": "sft", "sessions": [s.name for s in sessions], "above": above, "rerender": rerender},
            seed=seed,
            stats={"examples": report.examples, "tokens": report.tokens, "loss": report.last_loss},
        )
        console.print(
            f"{report.steps} steps, {report.seconds:.0f} s, loss {report.first_loss:.3f} -> {report.last_loss:.3f} "
            f"nats a token\nweights: {weights}"
        )
