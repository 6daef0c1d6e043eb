"""`replay show`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from replay import documents, show
from replay.commands.common import JsonOption, SessionArgument, StoreOption, console, opened, print_json
from replay.reader import Reader
from replay.schema import Session, Turn
from replay.store import DEFAULT_URL
from replay.timings import timings as timings_table
from replay.tokens import load_tokenizer


def show_(
    session: SessionArgument,
    turn: Annotated[int | None, typer.Option(min=1, help="Only this turn (1 is the first), in full.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="New prompt and sampled tokens.")] = False,
    logprobs: Annotated[bool, typer.Option("--logprobs", help="A table of sampled tokens and logprobs.")] = False,
    messages: Annotated[bool, typer.Option(help="New messages of each turn, and the reply.")] = True,
    request: Annotated[bool, typer.Option("--request", help="The request's body as the harness sent it.")] = False,
    reply: Annotated[bool, typer.Option("--reply", help="The sampled message, as the record keeps it.")] = False,
    timings: Annotated[bool, typer.Option("--timings", help="Only when things happened, a line a call.")] = False,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json, or a model's folder: show tokens as text.")
    ] = None,
    store: StoreOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """Show a session: its tree of turns, and what was said.

    Each line is one model call: purpose, how it ended, prompt tokens (+
    those new to it), sampled tokens, version of the weights, time taken.
    Turns that follow each other stand below each other; only forks and
    roots branch, and a root says why it is one. Sessions that were forked
    off a turn are named at it.

    In the token view prompt tokens are dim, sampled ones coloured by their
    probability; struck through are those that training leaves out. Into a
    pipe, --request and --reply write JSON alone, a line a turn.

    \b
        replay show NAME --no-messages
        replay show NAME --turn 3 --request | jq .messages
        replay show NAME --tokens --tokenizer MODEL_DIR   coloured by logprob
        replay show NAME --timings
        replay show NAME --json --tokens                  for scripts
    """
    with opened(store) as reader:
        found = reader.session(session)
        turns = reader.turns(found)
        if turn is not None and turn > len(turns):
            raise ValueError(f"session {session!r} has {show.counted(len(turns), 'turn')}, no turn {turn}")
        wanted = turns if turn is None else [turns[turn - 1]]
        if as_json:
            [overview] = reader.overview([found])
            print_json({
                **documents.session_document(overview),
                "turns": documents.turn_documents(
                    reader, turns, wanted, messages=messages, tokens=tokens or logprobs, request=request
                ),
            })  # fmt: skip
        elif (request or reply) and not sys.stdout.isatty():
            _raw(reader, wanted, request=request, reply=reply)
        elif timings:
            numbers = {one.id: number for number, one in enumerate(turns, 1)}
            console().print(timings_table(turns, wanted, numbers))
        else:
            options = show.Options(
                messages=messages,
                tokens=tokens,
                logprobs=logprobs,
                request=request,
                reply=reply,
                tokenizer=None if tokenizer is None else load_tokenizer(tokenizer),
            )
            _draw(reader, found, turns, turn, options)


def _raw(reader: Reader, wanted: list[Turn], *, request: bool, reply: bool) -> None:
    for turn in wanted:
        if request:
            print_json(reader.request(turn))
        if reply:
            print_json(reader.reply(turn))


def _draw(reader: Reader, session: Session, turns: list[Turn], turn: int | None, options: show.Options) -> None:
    if turn is not None:
        console().print(show.turn_view(reader, turns, turn, options))
        return
    [overview] = reader.overview([session])
    console().print(show.session_view(reader, overview, turns, options))
