"""`replay fork`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from replay import branching, proxying
from replay.commands.common import IgnoreOption, SessionArgument, StoreOption, console, err, opened
from replay.commands.serve import EngineOption, HomeOption, ModelOption
from replay.reader import Reader
from replay.show import counted
from replay.store import DEFAULT_URL


def fork(
    session: SessionArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The harness and its arguments.")],
    at: Annotated[int, typer.Option(min=1, metavar="TURN", help="The last turn that is answered from the store.")],
    n: Annotated[int, typer.Option("-n", "--n", min=1, help="How many branches.")] = 1,
    temperature: Annotated[float | None, typer.Option(min=0, help="Of live calls, whatever the harness asks.")] = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Replace a text in what the harness says after TURN; repeatable."),
    ] = None,
    ignore: IgnoreOption = None,
    workspace: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Run each branch in a copy of this folder.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Branches at a time; above 1 needs --workspace.")] = 1,
    group: Annotated[str | None, typer.Option(help="Group of the branches. Default: NAME.atTURN.")] = None,
    dummy_key: Annotated[list[str] | None, typer.Option(metavar="VARIABLE", help="As for `tap run`.")] = None,
    out: Annotated[Path, typer.Option(help="Logs, and copies of the workspace.")] = Path("runs/fork"),
    engine: EngineOption = "",
    model: ModelOption = "",
    home: HomeOption = "",
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Run a harness again from a turn on: stored up to TURN, live from there, N times.

    The harness is started from its beginning; its calls up to TURN are
    answered from the record, token for token, and those after it by vLLM.
    So it gets into the very state it was in, and then goes its own way: the
    same point, other samples (-n), another temperature, or another tool
    result (--edit). The harness does run its tools again: give it a
    --workspace as it was when the session began.

    Each branch is a session of its own. Its stored turns name those they
    came from and are not trained; the live ones continue them. The branches
    are a group: judge each with `replay score` and they can be compared, or
    trained on.

    \b
        replay fork NAME --at 2 -n 4 --engine http://127.0.0.1:8000 -- mini -t "..."
        replay fork NAME --at 3 --edit '2 failed=0 failed' --workspace ./before -- claude -p "..."
    """
    with opened(store) as reader:
        if jobs > 1 and workspace is None:
            raise ValueError("branches that run at a time need folders of their own: give --workspace")
        found = reader.session(session)
        if at > (count := len(reader.turns(found))):
            raise ValueError(f"session {session!r} has {counted(count, 'turn')}, no turn {at}")
        out.mkdir(parents=True, exist_ok=True)
        folder = out.absolute()
        replaying = proxying.Replaying(
            session=found.name, store=store, port=proxying.free_port(), until=at, engine=engine, model=model, home=home,
            sampling={} if temperature is None else {"temperature": temperature},
            edits=tuple(_edit(text) for text in edit or ()), ignore=tuple(ignore or ()),
        )  # fmt: skip
        plan = branching.Plan(
            names=branching.branch_names(reader, found, at, n), command=tuple(command),
            group=group or f"{found.name}.at{at}", task=found.task, port=replaying.port, store=store, home=home,
            folder=folder, workspace=workspace, dummy_keys=tuple(dummy_key or ()), jobs=jobs,
        )  # fmt: skip
        log = folder / f"{found.name}.at{at}.proxy.log"
        branches = []
        with proxying.running(replaying, log):
            for branch in branching.run(plan):
                err.print(f"replay: {branch.name} ended with exit code {branch.exit}", style="dim")
                branches.append(branch)
        console().print(_table(reader, branches))


def _edit(text: str) -> tuple[str, str]:
    old, found, new = text.partition("=")
    if not found or not old:
        raise ValueError(f"--edit {text!r} is not OLD=NEW")
    return old, new


def _table(reader: Reader, branches: list[branching.Branch]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("branch", overflow="fold")
    for header in ("exit", "stored", "live", "sampled"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("log", overflow="fold")
    for branch in branches:
        called = reader.sessions(prefix=branch.name)
        turns = reader.turns(called[0]) if called else []
        live = [turn for turn in turns if turn.replays is None]
        table.add_row(
            Text(branch.name, "bold"), str(branch.exit), str(len(turns) - len(live)), str(len(live)),
            f"{sum(turn.n_sampled for turn in live):,}", Text(str(branch.log), "dim"),
        )  # fmt: skip
    return table
