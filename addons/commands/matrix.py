"""`tap matrix`."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from typer.core import TyperCommand

from addons.commands.common import HARNESS_ROOT, Root, err, fail, reported
from certs import harnesses

_WIDTH = 160


class MatrixCommand(TyperCommand):
    """Keeps what follows `--`, which click would take for more names."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Click's own, for the words before."""
        end = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])


def matrix(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these; all if none.")] = None,
    engine: Annotated[str | None, typer.Option(metavar="URL", help="A real vLLM instead of the scripted one.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Harnesses at a time.")] = 1,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one harness.")] = 180.0,
    directory: Annotated[
        Path | None, typer.Option(help="For logs, the record and the table; runs/matrix/DATE if not given.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Where to write the table; DIRECTORY/matrix.md if not given.")
    ] = None,
    isolate: Annotated[bool, typer.Option(help="Each harness in a network of its own (Linux, root).")] = True,
    root: Root = HARNESS_ROOT,
) -> None:
    """Try harnesses: each does one small task behind a real proxy, and the outcome is a table.

    \b
        tap matrix
        tap matrix codex pi --jobs 2
        tap matrix --engine http://127.0.0.1:8000
        tap matrix codex -- --set tap_websocket=false

    Harnesses are installed as needed. The model is a script that takes the first
    tool offered that can write a file, so what is tried is the harness and us,
    token for token. A row is green when the file is written, all calls were
    answered, the conversation is one training sequence, and nothing went past the
    proxy. With a real vLLM, the task may fail. Exit status 1 if a row is red.
    What follows -- goes to mitmdump.
    """
    from addons.matrix import report
    from addons.matrix.row import Row
    from addons.matrix.run import MatrixError, Options
    from addons.matrix.run import matrix as run_matrix

    with reported():
        chosen = [harnesses.get(name) for name in names] if names else list(harnesses.load().values())
        directory = directory or Path("runs/matrix") / time.strftime("%Y%m%d-%H%M%S")
        if directory.exists():
            raise ValueError(f"{directory} exists: name a folder that does not")
    stages, done = {one.name: "waiting" for one in chosen}, dict[str, Row]()

    def tell(name: str, news: str | Row) -> None:
        if isinstance(news, str):
            stages[name] = news
        else:
            done[name] = news
        live.update(report.table(stages, done))

    # Where nobody sees the width (a pipe, a file), do not fold at 80.
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    with Live(report.table(stages, done), console=console, auto_refresh=False, vertical_overflow="visible") as live:
        options = Options(
            directory=directory,
            root=root,
            timeout=timeout,
            jobs=jobs,
            engine=engine,
            isolate=isolate,
            proxy_arguments=context.obj,
        )
        try:
            rows = asyncio.run(run_matrix(chosen, options, tell))
        except MatrixError as error:
            fail(str(error))
        live.refresh()
    target = markdown or directory / "matrix.md"
    words = ["tap", *sys.argv[1:]]
    target.write_text(report.markdown(rows, date=time.strftime("%Y-%m-%d"), command=shlex.join(words)))
    err.print(f"tap: {target}; logs and the record are in {directory}", style="dim", highlight=False)
    if any(row.faults for row in rows):
        raise typer.Exit(1)
