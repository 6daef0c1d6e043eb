"""`replay list`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from replay import documents, show
from replay.commands.common import JsonOption, StoreOption, console, err, opened, print_json
from replay.records import SessionStatus
from replay.store import DEFAULT_URL


def list_(
    harness: Annotated[str | None, typer.Option(help="Only sessions of this harness.")] = None,
    task: Annotated[str | None, typer.Option(help="Only sessions on this task.")] = None,
    group: Annotated[str | None, typer.Option(help="Only sessions of this group.")] = None,
    status: Annotated[SessionStatus | None, typer.Option(help="Only sessions in this state.")] = None,
    reward_min: Annotated[float | None, typer.Option(help="Only judged ones, with at least this reward.")] = None,
    reward_max: Annotated[float | None, typer.Option(help="Only judged ones, with at most this reward.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 50,
    store: StoreOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """List sessions, newest first.

    `seqs` counts the training sequences a session is made of: 1 for
    a harness that only appends, one more for each fork or subagent.
    `prompt` adds up the whole prompts of all calls.
    `reward` is "-" until somebody judges.

    \b
        replay list --status done --reward-max 0
        replay list --json | jq '.[].name'
    """
    with opened(store) as reader:
        found = reader.overview(
            reader.sessions(
                harness=harness, task=task, group=group, status=status, reward_min=reward_min,
                reward_max=reward_max, limit=limit,
            )
        )  # fmt: skip
        if as_json:
            print_json([documents.session_document(one) for one in found])
        elif found:
            console().print(show.sessions_table(found, time.time()))
        else:
            err.print("no session matches")
