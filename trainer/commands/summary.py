"""`trainer summary`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainer.commands.common import console, errors, plain_errors


def summary(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIRECTORY...", help="Of finished runs of `trainer run`.")
    ],
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this .md as well.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .png (needs matplotlib).")] = None,
) -> None:
    """What experiments came to: each recipe in each harness, before and after, over its seeds.

    Directories of one recipe are its seeds. A difference pairs each task before and after; its interval resamples
    cells of task and seed.

    \b
        trainer summary runs/results/tiny-0 runs/results/tiny-1 runs/results/tiny-2
        trainer summary runs/results/* --markdown results.md --plot results.png
    """
    from trainer import summary as summaries
    from trainer.display import changes_table
    from trainer.results import Finished

    with plain_errors():
        found = summaries.changes([Finished.load(directory) for directory in directories])
        console.print(changes_table(found, console.width))
        if markdown is not None:
            markdown.write_text(summaries.markdown(found))
            errors.print(f"table: {markdown}")
        if plot is not None:
            from trainer.plots import changes

            changes(found, plot)
            errors.print(f"plot: {plot}")
