"""`replay serve`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from replay.commands.common import IgnoreOption, SessionArgument, StoreOption, opened
from replay.proxying import Cadence, Replaying, Then
from replay.store import DEFAULT_URL

ModelOption = Annotated[
    str, typer.Option(envvar="HARNESSTAP_MODEL", help="Folder or hub id of the model's tokenizer and template.")
]
EngineOption = Annotated[
    str, typer.Option(envvar="HARNESSTAP_ENGINE", help="vLLM's address, for calls that go on live.")
]
HomeOption = Annotated[str, typer.Option(envvar="HARNESSTAP_HOME", help="Folder of the certificates, as for `tap up`.")]


def serve(
    session: SessionArgument,
    model: ModelOption = "",
    then: Annotated[
        Then, typer.Option(help="A request that the session does not have: refused, or sampled by vLLM.")
    ] = "stop",
    cadence: Annotated[Cadence, typer.Option(help="Replies at once, or at the pace they came when recorded.")] = "fast",
    ignore: IgnoreOption = None,
    engine: EngineOption = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The proxy's port.")] = 8080,
    home: HomeOption = "",
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Answer a real harness from a stored session: no vLLM, no GPU.

    Starts the proxy (`tap up`) on the record. Run the harness through it as
    ever, with `tap run`: each of its calls gets the reply that the
    session's call with the same conversation got, token for token, whatever
    the order they come in. What only tells of the moment (dates, white
    space, the working directory) may differ. A request that is not in the
    session is refused, and the refusal names the first difference: message,
    field, byte. It stands in the proxy's log, in the harness's error, and
    in the record. With --then live such a request goes to vLLM.

    The run is recorded as a session of its own, which names the one it
    replays.

    \b
        replay serve NAME --model MODEL_DIR                   # terminal 1
        tap run --session again -- mini -t "..."              # terminal 2
        replay diff NAME again
        replay serve NAME --ignore 'pid [0-9]+'
        replay serve NAME --then live --engine http://127.0.0.1:8000
    """
    with opened(store) as reader:
        found = reader.session(session)
        if not reader.turns(found):
            raise ValueError(f"session {session!r} has no turns to answer from")
        if not model and then == "stop":
            raise ValueError("--model: the folder of the tokenizer that the session was recorded with is needed")
        command = Replaying(
            session=found.name, store=store, port=port, then=then, cadence=cadence, engine=engine, model=model,
            home=home, ignore=tuple(ignore or ()),
        ).command()  # fmt: skip
    sys.stdout.flush()
    os.execv(command[0], command)
