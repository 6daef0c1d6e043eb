"""What a request asks for, told by its host and path alone. Nothing here ever leads to a provider."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote

from addons.provider_table import (
    HOUSEKEEPING,
    OPERATIONS,
    PROVIDERS,
    Dialect,
    Inert,
    Kind,
    Mount,
    Operation,
    Provider,
    styles_of,
)
from certs.ca import permitted_names

__all__ = ["Provider", "Route", "classify", "is_provider", "parse_extra", "provider_hosts"]


@dataclass(frozen=True, slots=True)
class Route:
    """What one request asks for.

    - `model`: a call of the model in `dialect`; `model` and `stream` are set where the path tells them.
    - `compact`: the same, for a summary that will stand for the conversation.
    - `stored`: the earlier reply with the id `reply`.
    - `models`: the list of models, or of the one that `model` names, in `dialect`'s shape.
    - `count`: how many tokens a request of `dialect` has.
    - `housekeeping`: anything else a harness does at home (telemetry, updates, flags): answer with `inert`.
    - `refused`: part of the provider's API that we do not serve: an error in `dialect`'s shape.
    - `foreign`: the host is no provider's; whether to tunnel or to refuse is not decided here.
    """

    kind: Kind
    provider: str
    path: str
    dialect: Dialect | None = None
    model: str | None = None
    stream: bool | None = None
    inert: Inert | None = None
    reply: str | None = None


def classify(method: str, host: str, path: str, extra: Sequence[Provider] = ()) -> Route:
    """What a request asks for.

    Args:
        method: HTTP method.
        host: the host that the client means, a port and letter case do not matter.
        path: path with or without a query; doubled and trailing slashes do not matter.
        extra: the user's own rows, from :func:`parse_extra`; they go before ours.
    """
    method, host = method.upper(), _host(host)
    path = re.sub(r"/{2,}", "/", "/" + re.split(r"[?#]", path, maxsplit=1)[0]).rstrip("/") or "/"
    provider = _provider_of(host, extra)
    if provider is None:
        return Route("foreign", host, path)
    for pattern, operation in _rules(provider):
        if method == operation.method and (match := pattern.fullmatch(path)):
            names = match.groupdict()
            named = names.get("model") or names.get("deployment")
            model = unquote(named) if named else None
            return Route(
                operation.kind, provider.name, path, operation.dialect, model, operation.stream,
                reply=names.get("reply"),
            )  # fmt: skip
    for pattern, dialect in _territories(provider):
        if pattern.fullmatch(path):
            return Route("refused", provider.name, path, dialect)
    default = Inert(404) if method in ("GET", "HEAD") else Inert(200)
    return Route("housekeeping", provider.name, path, inert=HOUSEKEEPING.get((method, host, path), default))


def is_provider(host: str, extra: Sequence[Provider] = ()) -> bool:
    """Whether traffic to `host` is ours to answer; our CA can sign for exactly these hosts and their
    subdomains."""
    return _provider_of(_host(host), extra) is not None


def provider_hosts(extra: Sequence[Provider] = ()) -> list[str]:
    """The DNS names that the certificate authority must be good for, for :func:`certs.ca.ensure`."""
    rows = (*extra, *PROVIDERS)
    return list(permitted_names(host.removeprefix("*.") for row in rows for host in row.hosts))


def parse_extra(text: str) -> tuple[Provider, ...]:
    """The user's own rows: `HOST[/BASE]=DIALECT[+DIALECT...]`, several separated by commas or blanks.

    Without a base, the dialects' requests are known by how their path ends, wherever they are mounted:

        llm.example.com=chat            https://llm.example.com/v1/chat/completions and any other prefix
        *.example.com/api/v1=chat+responses

    Raises:
        ValueError: naming the entry that is not understood.
    """
    mounts: dict[str, list[Mount]] = {}
    for entry in text.replace(",", " ").split():
        where, equals, names = entry.partition("=")
        host, slash, base = where.partition("/")
        host = host.lower().rstrip(".")
        if not equals or not (styles := names.split("+")) or not set(styles) <= set(OPERATIONS):
            known = ", ".join(OPERATIONS)
            raise ValueError(f"provider {entry!r}: write HOST=DIALECT or HOST/BASE=DIALECT; dialects: {known}")
        try:
            permitted_names([host.removeprefix("*.")])
        except ValueError as error:
            raise ValueError(f"provider {entry!r}: {error}") from error
        mount = Mount(f"/{base.strip('/')}" if slash and base.strip("/") else None, styles_of(styles))
        mounts.setdefault(host, []).append(mount)
    return tuple(Provider(host, (host,), tuple(own)) for host, own in mounts.items())


def _host(host: str) -> str:
    return re.sub(r":\d+$", "", host.lower()).rstrip(".")


def _provider_of(host: str, extra: Sequence[Provider]) -> Provider | None:
    for table in (tuple(extra), PROVIDERS):
        by_host = _by_host(table)
        if host in by_host:
            return by_host[host]
        labels = host.split(".")
        for start in range(1, len(labels)):  # the closest domain first
            if (wildcard := "*." + ".".join(labels[start:])) in by_host:
                return by_host[wildcard]
    return None


@cache
def _by_host(table: tuple[Provider, ...]) -> dict[str, Provider]:
    return {host: provider for provider in table for host in provider.hosts}


@cache
def _rules(provider: Provider) -> tuple[tuple[re.Pattern[str], Operation], ...]:
    return tuple(
        (re.compile(_base_pattern(mount.base) + _pattern(operation.path)), operation)
        for mount in provider.mounts
        for style in mount.styles
        for operation in OPERATIONS[style]
    )


@cache
def _territories(provider: Provider) -> tuple[tuple[re.Pattern[str], Dialect], ...]:
    """All below a mount belongs to the provider's API. A mount at the root claims only its operations."""
    return tuple(
        (re.compile(_base_pattern(mount.base) + "(?:/.*)?"), OPERATIONS[mount.styles[0]][0].dialect)
        for mount in provider.mounts
        if mount.base != ""
    )


def _base_pattern(base: str | None) -> str:
    return "(?:/.*)?" if base is None else _pattern(base)


def _pattern(template: str) -> str:
    """`{model}` may hold slashes and is captured, any other `{name}` is one segment, captured by its name."""
    parts = re.split(r"\{(\w+)\}", template)  # literal and name by turns
    return "".join(
        re.escape(part) if index % 2 == 0 else f"(?P<{part}>{'.+' if part == 'model' else '[^/]+'})"
        for index, part in enumerate(parts)
    )
