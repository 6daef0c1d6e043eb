"""`replay view`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from replay.commands.common import StoreOption, err, opened
from replay.store import DEFAULT_URL
from replay.tokens import load_tokenizer


def view(
    session: Annotated[str | None, typer.Argument(help="Name of the session to begin with. Default: all.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json, or a model's folder: show tokens as text.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The page's port on 127.0.0.1; 0: any free one.")] = 8090,
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Look at the record in a browser.

    Writes the address of a page on this machine and serves it until Ctrl-C:
    sessions with filters; a session's tree, timings and training sequences;
    of each call the messages, tokens and wire; groups side by side; rewards
    and figures over training. It is kept up to date while a harness runs.

    Only 127.0.0.1 is listened on, and the address holds a secret, which is
    a new one each time. Nothing in the record can be changed. From another
    machine, forward the port: ssh -L 8090:127.0.0.1:8090 HOST

    \b
        replay view
        replay view NAME --tokenizer MODEL_DIR
    """
    from replay.view import access, server  # aiohttp's start is too slow for the other commands

    with opened(store) as reader:
        token = access.new_token()
        path = "/" if session is None else f"/sessions/{reader.session(session).id}"
        loaded = None if tokenizer is None else load_tokenizer(tokenizer)

        def started(port: int) -> None:
            typer.echo(f"http://{server.HOST}:{port}{path}?{urlencode({'token': token})}")
            err.print("replay: serving until Ctrl-C", style="dim")

        with suppress(KeyboardInterrupt):
            asyncio.run(server.serve(server.application(reader.store, token, loaded), port, started))
