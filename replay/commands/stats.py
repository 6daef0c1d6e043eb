"""`replay stats`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay import plots as pictures
from replay import statistics
from replay.commands.common import JsonOption, StoreOption, console, err, opened, print_json
from replay.store import DEFAULT_URL


def stats(
    harness: Annotated[str | None, typer.Option(help="Only sessions of this harness.")] = None,
    task: Annotated[str | None, typer.Option(help="Only sessions on this task.")] = None,
    group: Annotated[str | None, typer.Option(help="Only sessions of this group.")] = None,
    text: Annotated[str | None, typer.Option(help="Only sessions that say this, as for `replay list`.")] = None,
    plots: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write PNG plots there.")] = None,
    store: StoreOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """Add up sessions by harness and version.

    Sessions, rewards (the mean of the judged ones), training sequences a
    session, tokens (`prompt` as sent, `new` without what was sent before),
    forks, retries, failed calls; seconds to the first token and tokens a
    second as median (95th percentile).

    \b
        replay stats
        replay stats --task fix-bug --plots plots/
    """
    with opened(store) as reader:
        sessions = reader.sessions(harness=harness, task=task, group=group, text=text)
        if not sessions:
            raise ValueError("no session matches")
        found = statistics.figures(reader, sessions)
        if plots is not None:
            for path in pictures.draw(found, sessions, plots):
                err.print(f"replay: {path}", style="dim")
        if as_json:
            print_json([one.document() for one in found])
        else:
            console().print(statistics.table(found))
