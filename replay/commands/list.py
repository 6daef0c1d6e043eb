"""`replay list`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from replay import documents, show
from replay.commands.common import JsonOption, StoreOption, console, err, opened, print_json
from replay.records import Purpose, SessionStatus
from replay.store import DEFAULT_URL


def list_(
    text: Annotated[
        str | None, typer.Argument(help="Only sessions with a message, or tool arguments, that has these words.")
    ] = None,
    harness: Annotated[str | None, typer.Option(help="Only sessions of this harness.")] = None,
    harness_version: Annotated[str | None, typer.Option(help="Only sessions of this version of the harness.")] = None,
    task: Annotated[str | None, typer.Option(help="Only sessions on this task.")] = None,
    group: Annotated[str | None, typer.Option(help="Only sessions of this group.")] = None,
    status: Annotated[SessionStatus | None, typer.Option(help="Only sessions in this state.")] = None,
    reward_min: Annotated[float | None, typer.Option(help="Only judged ones, with at least this reward.")] = None,
    reward_max: Annotated[float | None, typer.Option(help="Only judged ones, with at most this reward.")] = None,
    purpose: Annotated[Purpose | None, typer.Option(help="Only sessions with such a call.")] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Only sessions with a call under these weights.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 50,
    store: StoreOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """List sessions, newest first.

    TEXT is looked for in messages, reasoning and tool arguments: words that
    one message has all of, without case; "in quotes" those that follow each
    other; with a * at the end, words that begin so.

    `seqs` counts the training sequences a session is made of: 1 for a
    harness that only appends, one more for each fork or subagent. `prompt`
    adds up the whole prompts of all calls. `reward` is "-" until somebody
    judges.

    \b
        replay list --status done --reward-max 0
        replay list 'pytest "no module named"' --harness codex
        replay list 'Traceback*' --purpose main --weights 3
        replay list --json | jq '.[].name'
    """
    with opened(store) as reader:
        found = reader.overview(
            reader.sessions(
                harness=harness, harness_version=harness_version, task=task, group=group, status=status,
                reward_min=reward_min, reward_max=reward_max, purpose=purpose, weight_version=weights, text=text,
                limit=limit,
            )
        )  # fmt: skip
        if as_json:
            print_json([documents.session_document(one) for one in found])
        elif found:
            console().print(show.sessions_table(found, time.time()))
        else:
            err.print("no session matches")
