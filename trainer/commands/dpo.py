"""`trainer dpo`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from replay.reader import Reader
from replay.store import DEFAULT_URL, Store
from trainer import ranks
from trainer.commands.common import ReportOption, StoreOption, console, errors, plain_errors, quiet_libraries


def dpo(
    model: Annotated[str, typer.Option(help="The policy to begin from: a directory or a Hugging Face id.")],
    store: StoreOption = DEFAULT_URL,
    out: Annotated[Path, typer.Option(help="Where the trained model is written.")] = Path("runs/dpo"),
    margin: Annotated[float, typer.Option(min=0.0, help="By how much a reward must be higher to be preferred.")] = 0.5,
    per_group: Annotated[int, typer.Option(min=1, help="Pairs of one group, at most.")] = 4,
    purposes: Annotated[list[str] | None, typer.Option("--purpose", help="Turns to train. Default: main.")] = None,
    beta: Annotated[float, typer.Option(help="How firmly the policy is held to where it began.")] = 0.1,
    epochs: Annotated[float, typer.Option(help="Passes over the pairs.")] = 1.0,
    learning_rate: Annotated[float, typer.Option("--lr", help="Of AdamW, constant.")] = 1e-6,
    batch_size: Annotated[int, typer.Option(min=1, help="Pairs a step.")] = 8,
    max_tokens: Annotated[
        int | None, typer.Option(help="Cut sequences after the last turn within this length.")
    ] = None,
    lora_rank: Annotated[int | None, typer.Option(min=1, help="Train LoRA adapters; merged at the end.")] = None,
    checkpointing: Annotated[bool, typer.Option(help="Recompute activations: half the memory, 30 % slower.")] = True,
    report_to: ReportOption = "none",
    seed: Annotated[int, typer.Option(help="Of torch and of the order of pairs.")] = 0,
) -> None:
    """Train on preferences: within a group, sessions with the higher reward against those with the lower.

    Sequences are the sampled tokens themselves, so only sessions of this model's own tokenizer serve.

    \b
        trainer dpo --model ./model
        trainer dpo --model ./model --margin 0.2 --beta 0.05 --lora-rank 16
        accelerate launch --multi_gpu --num_processes 4 -m trainer.cli dpo --model ./model
    """
    with ranks.joined(), plain_errors(), ExitStack() as stack:
        if ranks.rank() > 0:
            from trainer.dpo import stand_by

            stand_by(model)
            return
        opened = stack.enter_context(Store.open(store, create=False))
        from trainer import reporting
        from trainer.adapters import Lora
        from trainer.dpo import DpoSettings, prefer
        from trainer.kept import keep
        from trainer.policy import find_checkpoint, load_policy
        from trainer.preferences import Pairing, pairs_of
        from trainer.students import check_own

        reporting.check(report_to)
        quiet_libraries()
        reader = Reader(opened)
        choice = Pairing(
            margin=margin, per_group=per_group, purposes=tuple(purposes or ["main"]), max_tokens=max_tokens
        )
        groups = reader.groups(min_size=2, include_trained=True)
        found = pairs_of(reader, groups, choice)
        for reason, tokens in found.left_out.most_common():
            errors.print(f"left out: {tokens:,} sampled tokens ({reason})", markup=False, highlight=False)
        if not found.pairs:
            raise ValueError(f"no pairs: in none of {len(groups)} complete groups do rewards differ by {margin:g}")
        policy = load_policy(find_checkpoint(model))
        sessions = {example.session for pair in found.pairs for example in (pair.chosen, pair.rejected)}
        check_own(policy, reader, [s for group in groups for s in group.sessions if s.id in sessions])
        errors.print(f"{len(found.pairs)} pairs from {found.groups} groups")
        settings = DpoSettings(
            beta=beta,
            epochs=epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            gradient_checkpointing=checkpointing,
            lora=None if lora_rank is None else Lora(rank=lora_rank),
            reports=report_to,
            seed=seed,
        )
        report = prefer(policy, found.pairs, settings, logs=out / "logs")
        weights = keep(
            policy,
            out / "weights",
            opened,
            version="dpo",
            trained_from=model,
            query={
                "method": "dpo",
                "margin": margin,
                "sessions": [[p.chosen.session, p.rejected.session] for p in found.pairs],
            },
            seed=seed,
            stats={"pairs": report.pairs, "loss": report.last_loss, "accuracy": report.accuracy},
        )
        console.print(
            f"{report.steps} steps, {report.seconds:.0f} s, loss {report.first_loss:.3f} -> {report.last_loss:.3f}, "
            f"{report.accuracy:.0%} of the last pairs ordered rightly\nweights: {weights}"
        )
