"""The command `trainer`; torch is imported only by the commands that need it."""

from __future__ import annotations

import typer

from trainer.commands.check import check
from trainer.commands.dpo import dpo
from trainer.commands.evaluate import evaluate
from trainer.commands.grpo import grpo
from trainer.commands.push import push
from trainer.commands.rebuild import rebuild
from trainer.commands.rollout import rollout
from trainer.commands.run import run
from trainer.commands.serve import serve
from trainer.commands.sft import sft
from trainer.commands.summary import summary

app = typer.Typer(
    name="trainer",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="""Roll out tasks with an unmodified harness, train on the record, push the weights.

\b
    trainer serve MODEL                   # terminal 1: vLLM, exact logprobs, reloadable weights
    tap up                                # terminal 2: the proxy that harnesses talk through
    tap harness install mini-swe-agent    # terminal 3
    trainer rollout TASKS --run first     # sessions with rewards, in the record
    trainer grpo --model MODEL            # one update, pushed into the running vLLM
    trainer rollout TASKS --run second    # the same tasks, new weights
""",
)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(serve)
app.command()(rollout)
app.command()(grpo)
app.command()(push)
app.command()(sft)
app.command()(dpo)
app.command("eval")(evaluate)
app.command()(run)
app.command()(summary)
app.command()(check)
app.command()(rebuild)


if __name__ == "__main__":
    app()
