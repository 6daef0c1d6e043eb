"""`replay show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay import documents, show
from replay.commands.common import JsonOption, StoreOption, console, opened, print_json
from replay.store import DEFAULT_URL
from replay.tokens import load_tokenizer


def show_(
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
    with opened(store) as reader:
        found = reader.session(session)
        turns = reader.turns(found)
        if turn is not None and turn > len(turns):
            raise ValueError(f"session {session!r} has {len(turns)} turns, no turn {turn}")
        [overview] = reader.overview([found])
        if as_json:
            wanted = turns if turn is None else [turns[turn - 1]]
            print_json({
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
            console().print(show.session_view(reader, overview, turns, options))
        else:
            console().print(show.turn_view(reader, turns, turn, options))
