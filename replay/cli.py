"""The `replay` command: look at the record, judge what is in it, run it again."""

from __future__ import annotations

import typer

from replay.commands.list import list_
from replay.commands.report import report
from replay.commands.score import score
from replay.commands.show import show_

app = typer.Typer(
    name="replay",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="""
Look at recorded sessions: every model call of a harness, exact to the token.

\b
    replay list                                newest sessions first
    replay list --group fix-bug --reward-min 1
    replay show NAME                           the tree of its turns
    replay show NAME --turn 3 --tokens --tokenizer MODEL_DIR
    replay report NAME                         is it ready for training?
    replay score NAME 1.0                      judge it, for the trainer
""",
)
app.command("list")(list_)
app.command("show")(show_)
app.command("report")(report)
app.command("score", context_settings={"ignore_unknown_options": True})(score)  # so that -1 is a reward
