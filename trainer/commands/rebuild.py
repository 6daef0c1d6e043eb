"""`trainer rebuild`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from replay.batches import load_batch
from replay.reader import Reader
from replay.store import DEFAULT_URL, Store
from trainer import ranks
from trainer.commands.common import StoreOption, console, plain_errors, quiet_libraries


def rebuild(
    batch: Annotated[int, typer.Argument(help="Id of the batch: `trainer grpo` prints it, metrics.jsonl has it.")],
    store: StoreOption = DEFAULT_URL,
    save: Annotated[Path | None, typer.Option(help="Write the rows, one JSON object a line.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="A directory of `trainer grpo`: make the step again and compare the weights.")
    ] = None,
) -> None:
    """Make the batch of a past GRPO step again, from its row ids, and prove that it is the same to the bit.

    With --run the step itself is made again, from the weights and moments before it, as long as they are kept: by as
    many processes as made it, launched in the same way.

    \b
        trainer rebuild 12
        trainer rebuild 12 --save rows.jsonl
        trainer rebuild 12 --run runs/grpo
        accelerate launch --multi_gpu --num_processes 4 -m trainer.cli rebuild 12 --run runs/grpo
    """
    with ranks.joined(), plain_errors(), Store.open(store, create=False) as opened:
        from trainer.grpo import stand_by
        from trainer.rebuild import learner_before, step_again, write_rows
        from trainer.rebuild import rebuild as made_again

        quiet_libraries()
        stored = load_batch(opened, batch)
        if ranks.rank() > 0:
            stand_by(partial(learner_before, stored, run or Path()))
            return
        rows = made_again(Reader(opened), stored)
        trained = sum(item.row.trained for item in rows)
        console.print(
            f"batch {batch}: {len(rows)} rows, {trained:,} trained tokens, weights {stored.batch.weight_version}: the "
            "same to the bit"
        )
        if save is not None:
            write_rows(rows, save)
            console.print(f"rows: {save}")
        if run is not None:
            differing = step_again(rows, stored, run)
            if differing:
                shown = ", ".join(differing[:5])
                raise ValueError(f"the step made again gives other weights: {len(differing)} tensors differ ({shown})")
            console.print("the step made again gives the same weights to the bit")
