"""`tap certs`."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer
from rich.table import Table

from addons.commands.common import DEFAULT_HOME, Home, Providers, out, reported
from addons.providers import parse_extra, provider_hosts
from certs import ca

VERTEX_REGIONAL = "-aiplatform.googleapis.com"


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
    with reported():
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


def _shortened(hosts: tuple[str, ...]) -> list[str]:
    """`hosts` with the many of Vertex AI as one."""
    regional = [host for host in hosts if host.endswith(VERTEX_REGIONAL)]
    if not regional:
        return list(hosts)
    others = [host for host in hosts if not host.endswith(VERTEX_REGIONAL)]
    return [*others, f"REGION{VERTEX_REGIONAL} ({len(regional)} regions)"]
