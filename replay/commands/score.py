"""`replay score`."""

from __future__ import annotations

from typing import Annotated

import typer

from replay.commands.common import StoreOption, number, opened
from replay.records import SessionStatus
from replay.store import DEFAULT_URL
from replay.writer import Recorder


def score(
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
    with opened(store) as reader, Recorder(reader.store) as recorder:
        found = reader.session(session)
        value = None if reward.lower() == "none" else number("REWARD", reward)
        parts = dict(_part(text) for text in part) if part else None
        recorder.score(found.name, value, parts, status).result()


def _part(text: str) -> tuple[str, float]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise ValueError(f"--part {text!r} is not NAME=VALUE")
    return name, number(f"--part {name}", value)
