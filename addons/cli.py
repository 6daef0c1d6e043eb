"""The `tap` command: make the certificates, start the proxy, run a harness behind it."""

from __future__ import annotations

import datetime
import enum
import json
import os
import re
import secrets
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from addons.providers import parse_extra, provider_hosts
from certs import ca, environment, files, keys

NOT_STARTED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
"""Exit codes of `tap run` itself, those of env, timeout and docker run; any other is the command's own."""

VERTEX_REGIONAL = "-aiplatform.googleapis.com"
STORE = "sqlite:///harnesstap.db"

app = typer.Typer(
    name="tap",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="""
Turn an unmodified coding agent into a reinforcement-learning environment.

\b
    trainer serve MODEL                     # vLLM, with the logprobs we need
    tap up                                  # second terminal: the proxy
    tap run -- claude -p "fix the test"     # third: any harness, as it is
    replay list
""",
)
out, err = Console(), Console(stderr=True, soft_wrap=True)


class Keys(enum.StrEnum):
    """When a harness must show a session key."""

    auto = "auto"
    required = "required"
    off = "off"


class SamplingPolicy(enum.StrEnum):
    """Whose sampling parameters are sent."""

    asked = "asked"
    full = "full"


class Egress(enum.StrEnum):
    """What becomes of hosts that are no provider's."""

    refuse = "refuse"
    tunnel = "tunnel"


class Shell(enum.StrEnum):
    """How `tap env` prints."""

    sh = "sh"
    fish = "fish"
    json = "json"


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
DEFAULT_HOME = files.default_home()


@app.command()
def certs(
    home: Home = DEFAULT_HOME,
    provider: Providers = None,
    renew: Annotated[bool, typer.Option("--renew", help="Make a new key, e.g. if the old one leaked.")] = False,
) -> None:
    """Make the certificate authority, or refresh it, and show what it is good for.

    'tap up' does the same by itself. Give the providers that you give to it:

    \b
        tap certs --provider llm.example.com=chat
    """
    with _reported():
        authority = ca.ensure(home, provider_hosts(parse_extra(",".join(provider or ()))), renew=renew)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    expires = datetime.datetime.fromtimestamp(authority.not_after, datetime.UTC).date().isoformat()
    table.add_row("authority", f"{authority.certificate}  ({authority.outcome}, until {expires})")
    table.add_row("key", f"{authority.directory / ca.KEY_FILE}  (keep it to yourself)")
    table.add_row("bundle", f"{authority.bundle}  (with the roots of this system; harnesses trust this)")
    table.add_row("SHA-256", authority.fingerprint)
    table.add_row("permitted", ", ".join(_shortened(authority.hosts)))
    table.add_row("", "and their subdomains; no client accepts a certificate of it for any other host")
    out.print(table)
    out.print("\nNext: [bold]tap up[/], then [bold]tap run -- COMMAND[/]", highlight=False)


@app.command()
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
    with _reported():
        variables = _variables(home, host, port, session, dummy_key)
        _annotate(store, home, session, task, group)
    if shell is Shell.json:
        print(json.dumps(variables, indent=2))
        return
    for name, value in variables.items():
        print(f"set -gx {name} {_fish(value)}" if shell is Shell.fish else f"export {name}={shlex.quote(value)}")


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The harness and its arguments.")],
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
) -> None:
    """Run a harness behind the proxy; its exit code, signals and terminal are its own.

    \b
        tap run -- claude -p "write hello.txt"
        tap run --session try-1 --task hello --group hello -- codex exec "..."
        tap run --dummy-key OPENAI_API_KEY -- mini -m openai/gpt-5.2 -t "..."

    Only the proxy and trust variables are set. Your own API key may stay:
    the proxy drops it, and nothing is ever sent to the provider. A harness
    that won't start without a key gets a placeholder by --dummy-key.
    """
    if session is None:
        session = _session_name(command[0])
        err.print(f"tap: session {session}", style="dim", highlight=False)
    with _reported(NOT_STARTED):
        variables = _variables(home, host, port, session, dummy_key)
        if not _listens(host, port):
            raise ValueError(f"no proxy listens on {host}:{port}; start it in another terminal: {_up(port)}")
        _annotate(store, home, session, task, group)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, {**os.environ, **variables})
    except FileNotFoundError:
        _fail(f"{command[0]}: no such command", NOT_FOUND)
    except OSError as error:
        _fail(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE)


@app.command(context_settings={"allow_extra_args": True})
def up(
    context: typer.Context,
    home: Home = DEFAULT_HOME,
    listen: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Port = 8080,
    engine: Annotated[str, typer.Option(envvar="HARNESSTAP_ENGINE", help="vLLM's address.")] = "http://127.0.0.1:8000",
    model: Annotated[
        str,
        typer.Option(
            envvar="HARNESSTAP_MODEL",
            help="Folder or hub id of the tokenizer and template; what vLLM serves if not given.",
        ),
    ] = "",
    store: StoreUrl = STORE,
    keys: Annotated[
        Keys, typer.Option(help="Session keys: compulsory, ignored, or compulsory beyond loopback.")
    ] = Keys.auto,
    provider: Providers = None,
    parser: Annotated[str, typer.Option(help="How replies are read into reasoning, text and tool calls.")] = "auto",
    egress: Annotated[
        Egress, typer.Option(help="Hosts that are no provider's: refuse them, or tunnel untouched.")
    ] = Egress.refuse,
    sampling: Annotated[
        SamplingPolicy,
        typer.Option(help="Sampling parameters: those the harness asks, or the full distribution at temperature 1."),
    ] = SamplingPolicy.asked,
    max_tokens: Annotated[
        int, typer.Option(min=0, help="Upper bound on the sampled tokens of one turn; 0 for none.")
    ] = 0,
) -> None:
    """Start the proxy: mitmdump with our addon; what follows -- goes to mitmdump.

    tap up
    tap up --engine http://gpu-7:8000 --store postgresql+psycopg://localhost/rl
    tap up --sampling full --max-tokens 4096       # on-policy rollouts, whatever temperature a harness asks
    tap up --listen 0.0.0.0 --egress tunnel        # for containers; session keys are then compulsory
    tap up --provider llm.example.com=chat -- --set termlog_verbosity=debug
    """
    extra = ",".join(provider or ())
    with _reported():
        authority = ca.ensure(home, provider_hosts(parse_extra(extra)))
    options = {
        "confdir": str(authority.directory),
        "connection_strategy": "lazy",  # eager would call the provider as soon as a harness connects
        "tap_home": str(home.absolute()),
        "tap_engine": engine,
        "tap_model": model,
        "tap_store": store,
        "tap_keys": keys.value,
        "tap_providers": extra,
        "tap_parser": parser,
        "tap_egress": egress.value,
        "tap_sampling": sampling.value,
        "tap_max_tokens": str(max_tokens),
    }
    arguments = ["--listen-host", listen, "--listen-port", str(port)]
    arguments += ["-s", str(Path(__file__).with_name("intercept.py"))]
    for name, value in options.items():
        arguments += ["--set", f"{name}={value}"]
    err.print(f"tap: proxy on {listen}:{port}, model from {engine}, record in {store}", highlight=False)
    sys.stderr.flush()
    # Of the same environment whatever is on PATH, and with no Typer left in the process.
    start = "from mitmproxy.tools.main import mitmdump; mitmdump()"
    os.execv(sys.executable, [sys.executable, "-c", start, *arguments, *context.args])


def _variables(home: Path, host: str, port: int, session: str, dummy_key: list[str] | None) -> dict[str, str]:
    """What a harness of `session` needs. The authority is made if there is none, and never changed."""
    made = (home / "certs" / ca.KEY_FILE).exists()
    authority = ca.load(home) if made else ca.ensure(home, provider_hosts())
    proxy = environment.proxy_url(host, port, session, keys.session_key(home, session))
    return {
        **environment.harness_environment(proxy, authority.bundle),
        **environment.dummy_keys(dummy_key or (), os.environ),
    }


def _annotate(store: str, home: Path, session: str, task: str | None, group: str | None) -> None:
    """Write task and group into the session's row: the proxy learns only the session's name and key."""
    if task is None and group is None:
        return
    # SQLAlchemy takes a while to import, and most runs have neither.
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
    key_hash = keys.key_hash(keys.session_key(home, session))
    with opened, Recorder(opened) as recorder:
        recorder.open_session(NewSession(name=session, key_hash=key_hash, task=task, group=group)).result()


def _shortened(hosts: tuple[str, ...]) -> list[str]:
    """`hosts` with the many of Vertex AI as one."""
    regional = [host for host in hosts if host.endswith(VERTEX_REGIONAL)]
    if not regional:
        return list(hosts)
    others = [host for host in hosts if not host.endswith(VERTEX_REGIONAL)]
    return [*others, f"REGION{VERTEX_REGIONAL} ({len(regional)} regions)"]


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


def _fish(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@contextmanager
def _reported(code: int = 1) -> Iterator[None]:
    """Say what is wrong in one line, without a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        _fail(str(error), code)


def _fail(message: str, code: int = 1) -> NoReturn:
    err.print(f"tap: {message}", style="red", markup=False, highlight=False)
    raise typer.Exit(code)
