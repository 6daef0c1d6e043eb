"""`replay merge`."""

from __future__ import annotations

from typing import Annotated

import typer

from replay import bundles
from replay.commands.common import StoreOption, opened, told
from replay.commands.export import RenameOption, put
from replay.reader import Reader
from replay.store import DEFAULT_URL, Store


def merge(
    others: Annotated[list[str], typer.Argument(metavar="OTHER...", help="Files, or database URLs, to take from.")],
    rename: RenameOption = False,
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Take all sessions of other records into this one.

    Rows get ids of this record, texts that both have are stored once, and
    the others stay as they are. Merging again adds only what is new.
    Training batches are not taken: a group that was trained on there
    counts as new here.

    \b
        replay merge node1.db node2.db
        replay merge postgresql+psycopg://host/rl --rename
    """
    with told(), Store.open(store) as target:
        putter = bundles.Putter(target)
        for other in others:
            url = other if "://" in other else f"sqlite:///{other}"
            if url == store:
                raise ValueError(f"{other} is the record itself")
            with opened(url) as reader:
                _take_all(reader, putter, rename=rename)


def _take_all(reader: Reader, putter: bundles.Putter, *, rename: bool) -> None:
    sessions = reader.sessions()[::-1]
    put(putter, (bundles.take(reader, session) for session in sessions), rename=rename)
