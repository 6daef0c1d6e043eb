"""`tap up`."""

from __future__ import annotations

import enum
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from addons import egress as leaving
from addons.access import parse_session_ports
from addons.commands.common import DEFAULT_HOME, STORE, Home, Port, Providers, StoreUrl, err, reported
from addons.providers import parse_extra, provider_hosts
from certs import ca


class Keys(enum.StrEnum):
    """When a harness must show a session key."""

    auto = "auto"
    required = "required"
    off = "off"


class SamplingPolicy(enum.StrEnum):
    """Whose sampling parameters are sent."""

    asked = "asked"
    full = "full"


class ReasoningPolicy(enum.StrEnum):
    """What becomes of the reasoning of earlier turns."""

    keep = "keep"
    template = "template"


class ImagePolicy(enum.StrEnum):
    """What becomes of images and documents that the model cannot see."""

    placeholder = "placeholder"
    refuse = "refuse"


class Egress(enum.StrEnum):
    """What becomes of hosts that are no provider's."""

    refuse = "refuse"
    tunnel = "tunnel"
    record = "record"


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
        Egress, typer.Option(help="Other hosts: refuse, tunnel untouched, or that and record who sent how much where.")
    ] = Egress.refuse,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST|WORD", help=f"Let these out and record it: hosts, or {', '.join(leaving.PRESETS)}."),
    ] = None,
    session_port: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PORT", help="A port on loopback that is one session's; no key is needed there."),
    ] = None,
    sampling: Annotated[
        SamplingPolicy,
        typer.Option(help="Sampling parameters: those the harness asks, or the full distribution at temperature 1."),
    ] = SamplingPolicy.asked,
    reasoning: Annotated[
        ReasoningPolicy,
        typer.Option(help="Reasoning of earlier turns: kept as sampled, or left out where the template does so."),
    ] = ReasoningPolicy.keep,
    images: Annotated[
        ImagePolicy, typer.Option(help="Images and documents the model cannot see: named in words, or refused.")
    ] = ImagePolicy.placeholder,
    max_tokens: Annotated[
        int, typer.Option(min=0, help="Upper bound on the sampled tokens of one turn; 0 for none.")
    ] = 0,
) -> None:
    """Start the proxy: mitmdump with our addon; what follows -- goes to mitmdump.

    tap up
    tap up --engine http://gpu-7:8000 --store postgresql+psycopg://localhost/rl
    tap up --sampling full --max-tokens 4096       # on-policy rollouts, whatever temperature a harness asks
    tap up --listen 0.0.0.0 --egress tunnel        # for containers; session keys are then compulsory
    tap up --allow pypi,npm,github                 # a task that installs packages; bytes by host in the record
    tap up --session-port try-1=8081               # for a harness that cannot have a user in its proxy URL
    tap up --provider llm.example.com=chat -- --set termlog_verbosity=debug
    """
    extra = ",".join(provider or ())
    with reported():
        authority = ca.ensure(home, provider_hosts(parse_extra(extra)))
        if not engine.startswith(("http://", "https://")):
            raise ValueError(f"engine {engine!r}: write http://HOST:PORT")
        leaving.Egress.parse(egress.value, ",".join(allow or ()))
        parse_session_ports(",".join(session_port or ()))
        if model:
            _check_model(model, parser)
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
        "tap_allow": ",".join(allow or ()),
        "tap_session_ports": ",".join(session_port or ()),
        "tap_sampling": sampling.value,
        "tap_reasoning": reasoning.value,
        "tap_images": images.value,
        "tap_max_tokens": str(max_tokens),
    }
    arguments = ["--listen-host", listen, "--listen-port", str(port)]
    arguments += ["-s", str(Path(__file__).parents[1] / "intercept.py")]
    # A value given after -- stands in the place of ours: mitmproxy takes no option twice.
    given = {
        word.partition("=")[0]
        for before, word in zip(context.args, context.args[1:], strict=False)
        if before == "--set"
    }
    for name, value in options.items():
        if name not in given:
            arguments += ["--set", f"{name}={value}"]
    err.print(f"tap: proxy on {listen}:{port}, model from {engine}, record in {store}", highlight=False)
    sys.stderr.flush()
    # Of the same environment whatever is on PATH, and with no Typer left in the process.
    start = "from mitmproxy.tools.main import mitmdump; mitmdump()"
    os.execv(sys.executable, [sys.executable, "-c", start, *arguments, *context.args])


def _check_model(model: str, parser: str) -> None:
    """Raise ValueError for a model whose files cannot work: before anything listens."""
    # transformers takes seconds to import.
    from addons.backend import load_model
    from addons.model import ModelError
    from addons.replies import UnknownParser

    try:
        load_model(model, parser)
    except (ModelError, UnknownParser) as error:
        raise ValueError(str(error)) from error
