"""What several commands of `tap` share: their options, a harness's variables, and how a failure is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from addons.providers import provider_hosts
from certs import ca, environment, files, keys
from certs.harnesses import DEFAULT_ROOT, Harness, HarnessError

STORE = "sqlite:///harnesstap.db"

# Where nobody sees the width (a pipe, a file), do not fold at 80: fingerprints and paths are for copying.
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
out, err = Console(width=_WIDTH), Console(stderr=True, soft_wrap=True)

Home = Annotated[
    Path, typer.Option(envvar=files.HOME_VARIABLE, help="Folder of the certificates and the session secret.")
]
Host = Annotated[str, typer.Option(help="Where the proxy is.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The proxy's port.")]
Providers = Annotated[
    list[str] | None,
    typer.Option("--provider", metavar="HOST=DIALECT", help="Also intercept this host, e.g. llm.example.com=chat."),
]
Session = Annotated[str, typer.Option(metavar="NAME", help="Name of the session that the calls belong to.")]
Task = Annotated[str | None, typer.Option(metavar="NAME", help="The task that the session works on.")]
Group = Annotated[str | None, typer.Option(metavar="NAME", help="Attempts that are compared share a group.")]
StoreUrl = Annotated[str, typer.Option("--store", envvar="HARNESSTAP_STORE", help="Database of the record.")]
DummyKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--dummy-key",
        metavar="VARIABLE",
        help="Set VARIABLE to a placeholder if it is unset, e.g. OPENAI_API_KEY.",
    ),
]
Root = Annotated[Path, typer.Option(help="Where harnesses are installed.")]
DEFAULT_HOME, HARNESS_ROOT = files.default_home(), DEFAULT_ROOT


def variables(home: Path, host: str, port: int, session: str, dummy_key: list[str] | None) -> dict[str, str]:
    """What a harness of `session` needs. The authority is made if there is none, and never changed."""
    made = (home / "certs" / ca.KEY_FILE).exists()
    authority = ca.load(home) if made else ca.ensure(home, provider_hosts())
    proxy = environment.proxy_url(host, port, session, keys.session_key(home, session))
    return {
        **environment.harness_environment(proxy, authority.bundle),
        **environment.dummy_keys(dummy_key or (), os.environ),
    }


def annotate(
    store: str,
    home: Path,
    session: str,
    *,
    task: str | None = None,
    group: str | None = None,
    harness: Harness | None = None,
) -> None:
    """Write into the session's row what the proxy cannot know: it learns only the session's name and key.

    Raises:
        ValueError: there is no record to write to.
    """
    # SQLAlchemy takes a while to import, and most runs have nothing to write.
    from replay.records import NewSession
    from replay.store import MissingStore, Store, StoreError
    from replay.writer import Recorder

    try:
        # Not created here: a record that the proxy does not write to would hold the session and no turn.
        opened = Store.open(store, create=False)
    except MissingStore as error:
        raise ValueError(f"{error} (give --store as you gave it to `tap up`)") from error
    except StoreError as error:
        raise ValueError(str(error)) from error
    row = NewSession(
        name=session,
        key_hash=keys.key_hash(keys.session_key(home, session)),
        harness=None if harness is None else harness.name,
        harness_version=None if harness is None else harness.version,
        task=task,
        group=group,
    )
    with opened, Recorder(opened) as recorder:
        recorder.open_session(row).result()


@contextmanager
def reported(code: int = 1) -> Iterator[None]:
    """Say what is wrong in one line, without a traceback."""
    try:
        yield
    except (ValueError, OSError, HarnessError) as error:
        fail(str(error), code)


def fail(message: str, code: int = 1) -> NoReturn:
    """Say what is wrong, and end with `code`."""
    err.print(f"tap: {message}", style="red", markup=False, highlight=False)
    raise typer.Exit(code)
