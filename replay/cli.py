"""The `replay` command: look at the record, judge what is in it, run it again."""

from __future__ import annotations

import typer

from replay.commands.diff import diff
from replay.commands.export import export, import_
from replay.commands.fork import fork
from replay.commands.list import list_
from replay.commands.merge import merge
from replay.commands.prune import prune, redact
from replay.commands.report import report
from replay.commands.score import score
from replay.commands.serve import serve
from replay.commands.show import show_
from replay.commands.stats import stats
from replay.commands.verify import verify
from replay.commands.view import view

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
    replay serve NAME --model MODEL_DIR        answer a harness from it, without vLLM
    replay diff NAME AGAIN                     the first difference of two runs
    replay verify NAME --against URL           do these weights give its logprobs?
    replay fork NAME --at 2 -n 4 -- COMMAND    run it again, live from turn 3 on
    replay export GROUP --format trl           datasets, trajectories, backups
    replay stats                               figures by harness and version
    replay view                                all of it in a browser
""",
)
app.command("list")(list_)
app.command("show")(show_)
app.command("report")(report)
app.command("score", context_settings={"ignore_unknown_options": True})(score)  # so that -1 is a reward
app.command()(serve)
app.command()(diff)
app.command()(verify)
app.command()(fork)
app.command()(export)
app.command("import")(import_)
app.command()(merge)
app.command()(prune)
app.command()(redact)
app.command()(stats)
app.command()(view)
