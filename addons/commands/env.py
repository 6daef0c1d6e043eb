"""`tap env`."""

from __future__ import annotations

import enum
import json
import shlex
from typing import Annotated

import typer

from addons.commands.common import (
    DEFAULT_HOME,
    STORE,
    DummyKeys,
    Group,
    Home,
    Host,
    Port,
    Session,
    StoreUrl,
    Task,
    annotate,
    reported,
    variables,
)


class Shell(enum.StrEnum):
    """How `tap env` prints."""

    sh = "sh"
    fish = "fish"
    json = "json"


def env(
    session: Session,
    home: Home = DEFAULT_HOME,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    task: Task = None,
    group: Group = None,
    store: StoreUrl = STORE,
    dummy_key: DummyKeys = None,
    shell: Annotated[Shell, typer.Option(help="sh also does for bash and zsh.")] = Shell.sh,
) -> None:
    """Print the variables that lead a harness through the proxy.

    eval "$(tap env --session try-1)"
    tap env --session try-1 --shell fish | source
    tap env --session try-1 --shell json | jq .HTTPS_PROXY
    """
    with reported():
        shown = variables(home, host, port, session, dummy_key)
        if task is not None or group is not None:
            annotate(store, home, session, task=task, group=group)
    if shell is Shell.json:
        print(json.dumps(shown, indent=2))
        return
    for name, value in shown.items():
        print(f"set -gx {name} {fish(value)}" if shell is Shell.fish else f"export {name}={shlex.quote(value)}")


def fish(value: str) -> str:
    """`value` quoted for fish."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
