"""`replay prune` and `replay redact`."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import typer

from replay import pruning, redaction
from replay.commands.common import StoreOption, err, opened
from replay.reader import Reader, UnknownSession
from replay.records import SessionStatus
from replay.schema import Session
from replay.show import counted
from replay.store import DEFAULT_URL
from replay.tokens import load_tokenizer


def prune(
    names: Annotated[list[str] | None, typer.Argument(metavar="[SESSION]...", help="Sessions to remove.")] = None,
    group: Annotated[str | None, typer.Option(help="Sessions of this group.")] = None,
    status: Annotated[SessionStatus | None, typer.Option(help="Sessions in this state.")] = None,
    older_than: Annotated[float | None, typer.Option(min=0, metavar="DAYS", help="Sessions begun before that.")] = None,
    trained: Annotated[bool, typer.Option("--trained", help="Those too that a training batch was made of.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only counted.")] = False,
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Remove sessions for good, and the texts that only they had.

    Without --yes it says what it would remove. Sessions of training batches
    are kept, since a batch could not be made again without them, unless
    --trained. No proxy may be writing to the record meanwhile.

    \b
        replay prune --older-than 30 --status failed
        replay prune --group trial-run --yes
    """
    with opened(store) as reader:
        if not names and group is None and status is None and older_than is None:
            raise ValueError("say which sessions: by name, --group, --status or --older-than")
        chosen = [reader.session(name) for name in names] if names else reader.sessions(group=group, status=status)
        begun = time.time() - (older_than or 0) * 86400
        chosen = [session for session in chosen if session.created_at <= begun]
        used = [] if trained else pruning.trained_on(reader.store, chosen)
        chosen = [session for session in chosen if session.id not in {one.id for one in used}]
        if used:
            err.print(f"replay: {counted(len(used), 'session')} of training batches kept (see --trained)", style="dim")
        if not yes:
            err.print(f"replay: {counted(len(chosen), 'session')} to remove; --yes does it")
            for session in chosen:
                typer.echo(session.name)
            return
        gone = pruning.prune(reader.store, chosen)
        pruning.compact(reader.store)
        err.print(
            f"replay: removed {counted(gone.sessions, 'session')}, {counted(gone.turns, 'turn')} and "
            f"{counted(gone.blobs, 'text')} of {gone.bytes:,} bytes"
        )


def redact(
    pattern: Annotated[str, typer.Argument(help="Regular expression (Python) of what must go.")],
    names: Annotated[list[str] | None, typer.Argument(metavar="[SESSION|GROUP]...", help="Default: all.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="MODEL_DIR", help="The model's: only the tokens of the secret are blanked.")
    ] = None,
    store: StoreOption = DEFAULT_URL,
) -> None:
    """Take a secret out of what is recorded: texts, requests, token ids.

    Every match becomes [redacted]. In the token ids the secret's tokens
    become 0; without --tokenizer nobody knows which those are, and all ids
    that are new in such a turn do. The turn and those that continue it are
    not trained any more. No proxy may be writing to the record meanwhile.

    \b
        replay redact 'sk-[A-Za-z0-9]{20,}' --tokenizer MODEL_DIR
        replay redact 'Jane Doe' NAME
    """
    with opened(store) as reader:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        if compiled.search(""):
            raise ValueError(f"{pattern!r} finds nothing everywhere: it would redact between all characters")
        loaded = None if tokenizer is None else load_tokenizer(tokenizer)
        done = redaction.redact(reader.store, _chosen(reader, names), compiled, loaded)
        pruning.compact(reader.store)
        err.print(
            f"replay: {counted(done.texts, 'text')} redacted; the token ids of {counted(done.turns, 'turn')}; "
            f"{counted(done.untrainable, 'turn')} not trained any more"
        )


def _chosen(reader: Reader, names: list[str] | None) -> list[Session]:
    if not names:
        return reader.sessions()[::-1]
    found: list[Session] = []
    for name in names:
        try:
            found.append(reader.session(name))
        except UnknownSession as unknown:
            members = reader.sessions(group=name)
            if not members:
                raise ValueError(f"{unknown}, and no group of that name") from unknown
            found += members
    return found
