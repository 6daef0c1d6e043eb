"""`replay diff`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from replay import differing
from replay.commands.common import IgnoreOption, JsonOption, StoreOption, console, opened, print_json
from replay.store import DEFAULT_URL
from replay.volatile import DEFAULT, Volatile


def diff(
    one: Annotated[str, typer.Argument(metavar="A", help="Name of a session.")],
    other: Annotated[str, typer.Argument(metavar="B", help="Name of the session to compare with it.")],
    other_store: Annotated[str | None, typer.Option(help="Database of B. Default: that of A.")] = None,
    ignore: IgnoreOption = None,
    store: StoreOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """Compare two sessions call by call, and name the first difference.

    Two runs of one task, a run and its replay, one version of a harness
    and the next: the message, field and byte where their requests part,
    other tools, the first prompt or sampled token that differs, and by
    how much logprobs do. Ends with exit code 2 when something differs.

    \b
        replay diff NAME AGAIN
        replay diff NAME NAME --other-store sqlite:///other.db
    """
    with ExitStack() as stack:
        reader = stack.enter_context(opened(store))
        against = reader if other_store is None else stack.enter_context(opened(other_store))
        sessions = reader.session(one), against.session(other)
        volatile = Volatile((*DEFAULT, *(ignore or ())))
        pairs = differing.compare(reader, sessions[0], against, sessions[1], volatile)
        if as_json:
            print_json(differing.document(pairs))
        else:
            console().print(differing.view(*sessions, pairs))
        if any(pair.differs for pair in pairs):
            raise typer.Exit(2)
