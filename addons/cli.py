"""The `tap` command: make the certificates, start the proxy, run a harness behind it."""

from __future__ import annotations

import typer

from addons.commands.certs import certs
from addons.commands.env import env
from addons.commands.harness import harness
from addons.commands.matrix import MatrixCommand, matrix
from addons.commands.run import RunCommand, run
from addons.commands.scripted import scripted
from addons.commands.up import up

app = typer.Typer(
    name="tap",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="""
Turn an unmodified coding agent into a reinforcement-learning environment.

\b
    trainer serve MODEL                     # vLLM, with the logprobs we need
    tap up                                  # second terminal: the proxy
    tap harness install claude-code
    tap run claude-code "fix the test"      # third: any harness, as it is
    replay list
""",
)
app.command()(certs)
app.command()(env)
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}, cls=RunCommand)(run)
app.command(context_settings={"allow_extra_args": True})(up)
app.command(cls=MatrixCommand)(matrix)
app.command()(scripted)
app.add_typer(harness, name="harness")
