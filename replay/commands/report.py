"""`replay report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay import readiness
from replay.commands.common import JsonOption, StoreOption, console, opened, print_json
from replay.reader import Reader, UnknownSession
from replay.rerender import Renderer
from replay.schema import Session
from replay.store import DEFAULT_URL


def report(
    name: Annotated[
        str | None, typer.Argument(metavar="[SESSION|GROUP]", help="Default: the newest sessions, see --limit.")
    ] = None,
    purpose: Annotated[
        list[str] | None, typer.Option(help="Turns that are trained; repeatable. Default: main.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="MODEL_DIR", help="A model's folder: compare with rendering every turn anew.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many sessions, newest first, when none is named.")] = 50,
    store: StoreOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """Say whether sessions are ready for training, and what stands in the way.

    Of each session: its training sequences; the sampled tokens that they
    train, and those left out with the reason; how much of the sequences is
    only context; where the tree of turns forked and why; turns that must
    not be trained; retries. Every sampled token is trained once or has a
    reason: anything else is a fault.

    The last table counts rows and tokens against two other ways of making
    rows. `exact prefix` joins two calls when the stored prompt of the
    second begins with all ids of the first. `re-rendered` also makes each
    prompt anew from its messages, as a trainer without stored ids has to:
    give it the model's folder.

    \b
        replay report NAME
        replay report GROUP --tokenizer MODEL_DIR
        replay report --json | jq '.totals'
    """
    with opened(store) as reader:
        sessions = _named(reader, name, limit)
        renderer = None if tokenizer is None else Renderer.load(tokenizer)
        purposes = tuple(purpose) if purpose else readiness.DEFAULT_PURPOSES
        found = [readiness.examine(reader, session, purposes, renderer) for session in sessions]
        if as_json:
            print_json(readiness.document(found))
        else:
            console().print(readiness.view(found))
        if any(one.unexplained for one in found):
            raise typer.Exit(2)


def _named(reader: Reader, name: str | None, limit: int) -> list[Session]:
    """The session of that name, or the sessions of that group."""
    if name is None:
        found = reader.sessions(limit=limit)
        if not found:
            raise ValueError("the record holds no sessions yet")
        return found
    try:
        return [reader.session(name)]
    except UnknownSession as unknown:
        if members := reader.sessions(group=name):
            return members[::-1]
        raise ValueError(f"{unknown}, and no group of that name") from unknown
