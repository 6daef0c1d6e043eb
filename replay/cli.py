"""The `replay` command: look at the record, and judge what is in it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from sqlalchemy.exc import DBAPIError

from replay import codec, documents, show
from replay.reader import Reader
from replay.records import SessionStatus
from replay.store import DEFAULT_URL, Store, StoreError
from replay.tokens import load_tokenizer
from replay.writer import Recorder

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
    replay score NAME 1.0                      judge it, for the trainer
""",
)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

StoreOption = Annotated[
    str, typer.Option("--store", envvar="HARNESSTAP_STORE", help="Database URL: sqlite:///FILE or postgresql://...")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output, for scripts.")]


@app.command("list")
def list_sessions(
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
    with _opened(store) as reader:
        found = reader.overview(
            reader.sessions(
                harness=harness, task=task, group=group, status=status, reward_min=reward_min,
                reward_max=reward_max, limit=limit,
            )
        )  # fmt: skip
        if as_json:
            _print_json([documents.session_document(one) for one in found])
        elif found:
            _console().print(show.sessions_table(found, time.time()))
        else:
            err.print("no session matches")


@app.command("show")
def show_session(
    session: Annotated[str, typer.Argument(help="Name of the session, as `replay list` shows it.")],
    turn: Annotated[int | None, typer.Option(min=1, help="Only this turn (1 is the first), in full.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="New prompt and sampled tokens.")] = False,
    logprobs: Annotated[bool, typer.Option("--logprobs", help="A table of sampled tokens and logprobs.")] = False,
    messages: Annotated[bool, typer.Option(help="New messages of each turn, and the reply.")] = True,
    request: Annotated[bool, typer.Option("--request", help="The request's body as the harness sent it.")] = False,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json, or a model's folder: show tokens as text.")
    ] = None,
    store: StoreOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """Show a session: its tree of turns, and what was said.

    Each line is one model call: purpose, how it ended, prompt tokens
    (+ those new to it), sampled tokens, version of the weights, time taken.
    Turns that follow each other stand below each other; only forks and
    roots branch, and a root says why it is one.

    \b
        replay show NAME --no-messages
        replay show NAME --turn 3 --request
        replay show NAME --tokens --tokenizer MODEL_DIR   coloured by logprob
        replay show NAME --json --tokens                  for scripts
    """
    with _opened(store) as reader:
        found = reader.session(session)
        turns = reader.turns(found)
        if turn is not None and turn > len(turns):
            raise ValueError(f"session {session!r} has {len(turns)} turns, no turn {turn}")
        [overview] = reader.overview([found])
        if as_json:
            wanted = turns if turn is None else [turns[turn - 1]]
            _print_json({
                **documents.session_document(overview),
                "turns": documents.turn_documents(
                    reader, turns, wanted, messages=messages, tokens=tokens or logprobs, request=request
                ),
            })  # fmt: skip
            return
        options = show.Options(
            messages=messages,
            tokens=tokens,
            logprobs=logprobs,
            request=request,
            tokenizer=None if tokenizer is None else load_tokenizer(tokenizer),
        )
        if turn is None:
            _console().print(show.session_view(reader, overview, turns, options))
        else:
            _console().print(show.turn_view(reader, turns, turn, options))


@app.command("score", context_settings={"ignore_unknown_options": True})  # so that -1 is a reward
def score_session(
    session: Annotated[str, typer.Argument(help="Name of the session.")],
    reward: Annotated[str, typer.Argument(help="A number, or `none` to take the judgement back.")],
    part: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A part of it; repeatable.")] = None,
    status: Annotated[SessionStatus | None, typer.Option(help="Set the session's state, too.")] = None,
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Judge a session: set its reward.

    Not judged (`none`) is not 0: such a session is never trained on.

    \b
        replay score NAME 1 --status done
        replay score NAME 0.75 --part tests=1 --part length=-0.25
        replay score NAME none
    """
    with _opened(store) as reader, Recorder(reader.store) as recorder:
        found = reader.session(session)
        value = None if reward.lower() == "none" else _number("REWARD", reward)
        parts = dict(_part(text) for text in part) if part else None
        recorder.score(found.name, value, parts, status).result()


@contextlib.contextmanager
def _opened(url: str) -> Iterator[Reader]:
    """A reader; what the user can mend is told in a line, with exit code 1."""
    try:
        with Store.open(url, create=False) as store:
            yield Reader(store)
    except (StoreError, LookupError, ValueError) as error:
        err.print(f"replay: {error}", style="red")
        raise typer.Exit(1) from error
    except DBAPIError as error:
        err.print(f"replay: the database says: {error.orig}", style="red")
        raise typer.Exit(1) from error


def _part(text: str) -> tuple[str, float]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise ValueError(f"--part {text!r} is not NAME=VALUE")
    return name, _number(f"--part {name}", value)


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{what}: {text!r} is not a number") from error


def _console() -> Console:
    # Where nobody sees the width (a pipe, a file), do not fold at 80.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return Console(highlight=False, markup=False, width=width)


def _print_json(document: object) -> None:
    typer.echo(codec.dumps(document))
