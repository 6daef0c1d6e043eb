"""`tap harness`: the harnesses of the table, and installing them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from addons.commands.common import HARNESS_ROOT, Root, err, fail, out, reported
from certs import harnesses
from certs.harnesses import Harness, HarnessError

harness = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""
The harnesses that are known, and installing them.

\b
    tap harness list
    tap harness install claude-code codex
    tap run codex "write hello.txt"
""",
)
_AT_ONCE = 4


@harness.command("list")
def list_harnesses(root: Root = HARNESS_ROOT) -> None:
    """Show the table: what is known, in which version, and whether it is installed.

    \b
        tap harness list
    """
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "version", "package", "dialects", "installed"):
        table.add_column(column, overflow="fold")
    for one in harnesses.load().values():
        package = f"{one.registry}:{one.package}"
        table.add_row(one.name, one.version, package, ", ".join(one.dialects), "yes" if _found(one, root) else "")
    out.print(table)


@harness.command()
def install(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Which harnesses.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of the table.")] = False,
    root: Root = HARNESS_ROOT,
) -> None:
    """Install harnesses, unmodified and pinned, each in a folder of its own. Prints the paths of their programs.

    \b
        tap harness install claude-code codex
        tap harness install --all
    """
    with reported():
        if bool(names) == everything:
            raise ValueError("name the harnesses to install, or say --all")
        chosen = [harnesses.get(name) for name in names or harnesses.load()]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        failed = [error for error in pool.map(lambda one: _install(one, root), chosen) if error is not None]
    if failed:
        fail("\n     ".join(map(str, failed)))


def _install(one: Harness, root: Path) -> HarnessError | None:
    """One that cannot be installed keeps no other from it."""
    try:
        print(harnesses.install(one, root, say=lambda text: err.print(f"tap: {text}", style="dim", highlight=False)))
    except HarnessError as error:
        return error
    return None


def _found(one: Harness, root: Path) -> bool:
    try:
        harnesses.find(one, root)
    except HarnessError:
        return False
    return True
