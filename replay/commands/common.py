"""What the commands have in common: options, how errors are told, how output is written."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from sqlalchemy.exc import DBAPIError

from replay import codec
from replay.reader import Reader
from replay.store import Store, StoreError

err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

StoreOption = Annotated[
    str, typer.Option("--store", envvar="HARNESSTAP_STORE", help="Database URL: sqlite:///FILE or postgresql://...")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output, for scripts.")]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="What may differ in what a harness says; repeatable."),
]
SessionArgument = Annotated[str, typer.Argument(help="Name of the session, as `replay list` shows it.")]


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What the user can mend is told in a line, with exit code 1."""
    try:
        yield
    except (StoreError, LookupError, ValueError, OSError) as error:
        err.print(f"replay: {error}", style="red")
        raise typer.Exit(1) from error
    except DBAPIError as error:
        err.print(f"replay: the database says: {error.orig}", style="red")
        raise typer.Exit(1) from error


@contextlib.contextmanager
def opened(url: str) -> Iterator[Reader]:
    """A reader of the record at `url`, which must be there."""
    with told(), Store.open(url, create=False) as store:
        yield Reader(store)


def console() -> Console:
    """For tables and trees."""
    # Where nobody sees the width (a pipe, a file), do not fold at 80.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return Console(highlight=False, markup=False, width=width)


def print_json(document: object) -> None:
    """One JSON document on a line of its own."""
    typer.echo(codec.dumps(document))


def number(what: str, text: str) -> float:
    """The number that `text` is; ValueError names `what` it was for."""
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{what}: {text!r} is not a number") from error
