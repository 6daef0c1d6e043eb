"""`tap run`."""

from __future__ import annotations

import datetime
import os
import re
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from addons.commands.common import (
    DEFAULT_HOME,
    HARNESS_ROOT,
    STORE,
    DummyKeys,
    Group,
    Home,
    Host,
    Port,
    Root,
    StoreUrl,
    Task,
    annotate,
    err,
    fail,
    reported,
    variables,
)
from certs import harnesses, isolation
from certs.harnesses import Harness

NOT_STARTED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
"""Exit codes of `tap run` itself, those of env, timeout and docker run; any other is the command's own."""


class RunCommand(TyperCommand):
    """Remembers whether `--` was written: click drops it, and here it tells a command from a harness's name."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Click's own, with a look at the words before."""
        ctx.obj = "--" in args
        return super().parse_args(ctx, args)


def run(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(metavar='NAME "TASK" | -- COMMAND...', help="A harness of the table, or any command.")
    ],
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the session; made up if not given.")
    ] = None,
    home: Home = DEFAULT_HOME,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    task: Task = None,
    group: Group = None,
    store: StoreUrl = STORE,
    dummy_key: DummyKeys = None,
    root: Root = HARNESS_ROOT,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="A network of its own, with no way out but the proxy (Linux).")
    ] = False,
    no_env: Annotated[
        bool, typer.Option("--no-env", help="The same, for programs that ignore proxy variables: none is set.")
    ] = False,
    count_direct: Annotated[
        bool, typer.Option("--count-direct", help="Only count connections past the proxy, by looking often.")
    ] = False,
) -> None:
    """Run a harness behind the proxy; its exit code, signals and terminal are its own.

    \b
        tap run claude-code "write hello.txt"
        tap run --session try-1 --task hello --group hello codex "..."
        tap run -- claude -p "write hello.txt"
        tap run --dummy-key OPENAI_API_KEY -- mini -m openai/gpt-5.2 -t "..."
        tap run --isolate codex "..."
        tap run --no-env -- ./program-without-proxy-support

    NAME is one of `tap harness list`, installed by `tap harness install`; it is
    started as the table says, with placeholders for the keys that you have not
    set, and its name and version are recorded.

    After -- comes any command. Only the proxy and trust variables are set. Your
    own API key may stay: the proxy drops it, and nothing is ever sent to the
    provider. A harness that won't start without a key gets a placeholder by
    --dummy-key.

    With --isolate the harness cannot go round the proxy: connections to
    anywhere else are refused at once, and named at the end. With --no-env, what
    it sends to ports 80 and 443 of any host is led through the proxy, and our
    CA is in the files where it looks for one; Node and Bun, which look in none,
    still get NODE_EXTRA_CA_CERTS. In both, servers on the machine's loopback
    are out of reach, and files are the machine's: it is no jail.
    """
    modes: dict[isolation.Mode, bool] = {"isolate": isolate, "no-env": no_env, "count": count_direct}
    chosen = [mode for mode, wanted in modes.items() if wanted]
    if len(chosen) > 1:
        fail("choose one of --isolate, --no-env and --count-direct", NOT_STARTED)
    with reported(NOT_STARTED):
        harness = None if context.obj else _harness(command)
        own: dict[str, str] = {}
        if harness is not None:
            program = harnesses.find(harness, root)
            command = harness.argv(command[1], program)
            own = {"PATH": os.pathsep.join([str(program.parent), os.environ.get("PATH", os.defpath)])}
            own |= {name: value for name, value in harness.env.items() if not os.environ.get(name)}
    if session is None:
        session = _session_name(command[0] if harness is None else harness.name)
        err.print(f"tap: session {session}", style="dim", highlight=False)
    with reported(NOT_STARTED):
        proxied = variables(home, host, port, session, dummy_key)
        if not _listens(host, port):
            raise ValueError(f"no proxy listens on {host}:{port}; start it in another terminal: {_up(port)}")
        if harness is not None or task is not None or group is not None:
            annotate(store, home, session, task=task, group=group, harness=harness)
    if chosen:
        command = isolation.wrap(command, chosen[0])
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is started inherits that
    try:
        os.execvpe(command[0], command, {**os.environ, **own, **proxied})
    except FileNotFoundError:
        fail(f"{command[0]}: no such command", NOT_FOUND)
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE)


def _harness(words: list[str]) -> Harness | None:
    """The harness that the short form names: its name, then the task in one word."""
    return harnesses.load().get(words[0]) if len(words) == 2 else None


def _session_name(command: str) -> str:
    """Such as `claude-20261130-221500-3f9a`: sorts by time, and no two are the same."""
    program = re.sub(r"[^A-Za-z0-9._-]", "-", Path(command).name)[:80] or "harness"
    return f"{program}-{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False


def _up(port: int) -> str:
    return "tap up" if port == 8080 else f"tap up --port {port}"
