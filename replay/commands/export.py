"""`replay export` and `replay import`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from replay import atif, bundles, codec, datasets, interchange
from replay.commands.common import StoreOption, err, opened, told
from replay.reader import Reader, UnknownSession
from replay.schema import Session
from replay.sequences import DEFAULT_PURPOSES
from replay.store import DEFAULT_URL, Store

Format = Literal["harnesstap", "openai", "trl", "atif"]
RenameOption = Annotated[bool, typer.Option("--rename", help="Give sessions whose name is taken the next free one.")]


def export(
    names: Annotated[list[str] | None, typer.Argument(metavar="[SESSION|GROUP]...", help="Default: all.")] = None,
    form: Annotated[Format, typer.Option("--format", help="What to write, see above.")] = "harnesstap",
    out: Annotated[Path | None, typer.Option(help="File; .parquet for Parquet. Default: standard output.")] = None,
    purpose: Annotated[
        list[str] | None, typer.Option(help="Turns that are trained; repeatable. Default: main.")
    ] = None,
    reward_min: Annotated[float | None, typer.Option(help="Only judged sessions, with at least this reward.")] = None,
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Write sessions for other programs, as lines of JSON or as Parquet.

    harnesstap: everything, exact to the bit, for `replay import`.
    openai: a training sequence a line, as messages and tools.
    trl: a training sequence a line, as exact input_ids and labels, with
    logprobs, for TRL's SFTTrainer or any trainer.
    atif: a trajectory a line, in Harbor's format (ATIF v1.7).

    \b
        replay export NAME GROUP --out sessions.jsonl
        replay export --format trl --reward-min 1 --out good.parquet
        replay export NAME --format atif | head -1 > trajectory.json
    """
    with opened(store) as reader:
        sessions = [one for one in _named(reader, names) if reward_min is None or _earned(one, reward_min)]
        if not sessions:
            raise ValueError("no session matches")
        purposes = tuple(purpose) if purpose else DEFAULT_PURPOSES
        if out is not None and out.suffix == ".parquet":
            if form not in ("openai", "trl"):
                raise ValueError(f"Parquet is for the formats openai and trl; write {form} to a .jsonl file")
            datasets.write_parquet(list(_rows(reader, sessions, form, purposes)), str(out))
            count = len(sessions)
        else:
            count = _write(_lines(reader, sessions, form, purposes), out)
        err.print(f"replay: {len(sessions)} sessions" + ("" if out is None else f" in {out}"), style="dim")
        if count == 0:
            raise ValueError("these sessions have no training sequences; `replay report` says why")


def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Written by `replay export`.")],
    rename: RenameOption = False,
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Put exported sessions into the record.

    A session that is there already is left alone; another session of the
    same name is an error, unless --rename gives the new one a name like
    NAME.2. Texts that the record has are not stored again.

    \b
        replay import sessions.jsonl --store sqlite:///mine.db
    """
    with told(), Store.open(store) as target:
        putter = bundles.Putter(target)
        for path in files:
            with path.open("rb") as source:
                try:
                    put(putter, interchange.read(source), rename=rename)
                except ValueError as error:
                    raise ValueError(f"{path}: {error}") from error


def put(putter: bundles.Putter, found: Iterator[bundles.Bundle], *, rename: bool) -> None:
    """Put bundles, and tell of each."""
    for bundle in found:
        name = putter.put(bundle, rename=rename)
        what = "is there already" if name is None else "added" if name == bundle.name else f"added as {name}"
        err.print(f"replay: {bundle.name} {what}", style="dim")


def _named(reader: Reader, names: list[str] | None) -> list[Session]:
    """Sessions by name, or by group, oldest first."""
    if not names:
        return reader.sessions()[::-1]
    found: dict[int, Session] = {}
    for name in names:
        try:
            members = [reader.session(name)]
        except UnknownSession as unknown:
            members = reader.sessions(group=name)[::-1]
            if not members:
                raise ValueError(f"{unknown}, and no group of that name") from unknown
        found |= {session.id: session for session in members}
    return list(found.values())


def _earned(session: Session, least: float) -> bool:
    return session.reward is not None and session.reward >= least


def _lines(reader: Reader, sessions: list[Session], form: Format, purposes: tuple[str, ...]) -> Iterator[bytes]:
    if form == "harnesstap":
        yield from interchange.lines(bundles.take(reader, session) for session in sessions)
    else:
        yield from (codec.dumps(row) for row in _rows(reader, sessions, form, purposes))


def _rows(reader: Reader, sessions: list[Session], form: Format, purposes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for session in sessions:
        if form == "atif":
            yield from atif.trajectories(reader, session)
            continue
        row = datasets.openai_row if form == "openai" else datasets.trl_row
        yield from (row(reader, sequence) for sequence in datasets.sequences(reader, session, purposes))


def _write(lines: Iterator[bytes], out: Path | None) -> int:
    count = 0
    if out is None:
        for count, line in enumerate(lines, 1):  # noqa: B007
            sys.stdout.buffer.write(line + b"\n")
        sys.stdout.flush()
        return count
    with out.open("wb") as file:
        for count, line in enumerate(lines, 1):  # noqa: B007
            file.write(line + b"\n")
    return count
