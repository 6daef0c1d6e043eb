"""`trainer install`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certs import harnesses
from trainer.commands.common import errors, plain_errors


def install(
    name: Annotated[str, typer.Argument(help="A harness of the list, e.g. mini-swe-agent.")],
    root: Annotated[Path, typer.Option(help="Where environments of harnesses live.")] = harnesses.DEFAULT_ROOT,
    harness_file: Annotated[Path, typer.Option(help="A TOML file like the shipped one.")] = harnesses.SHIPPED,
) -> None:
    """Install a harness, unmodified, in an environment of its own. Prints the path of its program.

    \b
        trainer install mini-swe-agent
    """
    with plain_errors():
        program = harnesses.install(harnesses.get(name, harness_file), root, say=errors.print)
        print(program)
