"""`replay score`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from replay.commands.common import StoreOption, console, number, opened
from replay.reader import Reader
from replay.records import SessionStatus
from replay.rewards import RewardFile, parse
from replay.rewards import again as score_again
from replay.store import DEFAULT_URL
from replay.writer import Recorder


def score(
    session: Annotated[str | None, typer.Argument(help="Name of the session.")] = None,
    reward: Annotated[str | None, typer.Argument(help="A number, or `none` to take the judgement back.")] = None,
    part: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A part of it; repeatable.")] = None,
    status: Annotated[SessionStatus | None, typer.Option(help="Set the session's state, too.")] = None,
    again: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE[:NAME=NUMBER,...]", help="Add the terms of this reward file; repeatable."),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Take all terms away: the task's own reward again.")] = False,
    group: Annotated[list[str] | None, typer.Option(help="With --again: these groups. Default: all.")] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="With --again: only show what it would be.")] = False,
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Judge a session: set its reward. Or score complete groups again, by reward files, without new rollouts.

    Not judged (`none`) is not 0: such a session is never trained on. A reward file is Python with a function
    `reward(group)`; fewer_calls, format and length come with the product.

    \b
        replay score NAME 1 --status done
        replay score NAME 0.75 --part tests=1 --part length=-0.25
        replay score NAME none
        replay score --again fewer_calls:alpha=0.1 --again length --dry-run
        replay score --plain
    """
    with opened(store) as reader, Recorder(reader.store) as recorder:
        if again or plain:
            if session is not None:
                raise ValueError("--again scores groups: name them with --group")
            _again(reader, recorder, [parse(text) for text in again or ()], group, dry)
            return
        if session is None or reward is None:
            raise ValueError("name a session and its reward, or a reward file with --again")
        found = reader.session(session)
        value = None if reward.lower() == "none" else number("REWARD", reward)
        parts = dict(_part(text) for text in part) if part else None
        recorder.score(found.name, value, parts, status).result()


def _again(reader: Reader, recorder: Recorder, files: list[RewardFile], names: list[str] | None, dry: bool) -> None:
    groups = [found for found in reader.groups(include_trained=True) if not names or found.name in names]
    if missing := sorted(set(names or ()) - {found.name for found in groups}):
        raise LookupError(f"no complete group {', '.join(missing)}")
    table = Table()
    for column in ("session", "before", "now", "terms"):
        table.add_column(column, justify="right" if column in ("before", "now") else "left")
    for one in score_again(reader, recorder, groups, files, dry=dry):
        terms = ", ".join(f"{name} {value:g}" for name, value in one.parts.items())
        table.add_row(one.session, _shown(one.before), _shown(one.reward), terms)
    console().print(table)


def _shown(reward: float | None) -> str:
    return "-" if reward is None else f"{reward:g}"


def _part(text: str) -> tuple[str, float]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise ValueError(f"--part {text!r} is not NAME=VALUE")
    return name, number(f"--part {name}", value)
