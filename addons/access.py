"""Who may use the proxy: the user and key in the proxy URL, or the port that was opened for one session."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from mitmproxy import http

from addons.egress import PRESETS
from certs import keys

_HOW = "Set HTTPS_PROXY=http://SESSION:KEY@HOST:PORT; `tap env --session SESSION` prints it with the right key."


@dataclass(frozen=True, slots=True)
class ProxyUser:
    """A connection's proxy user: its session's name, None for a plain proxy URL."""

    session: str | None


class Access:
    """Checks proxy credentials.

    Args:
        home: folder of the session secret.
        mode: `required`, `off`, or `auto`: required exactly when listening beyond loopback.
        listen_hosts: the proxy's own listening addresses; mitmproxy's empty default means every interface.
        ports: sessions by the port that is theirs: who comes there needs no key.
    """

    def __init__(
        self, home: Path, mode: str, listen_hosts: Collection[str], ports: Mapping[int, str] | None = None
    ) -> None:
        self._home = home
        self._mode = mode
        self._ports = ports or {}
        self.compulsory = mode == "required" or (mode == "auto" and not all(map(_is_loopback, listen_hosts)))

    def check(self, header: str | None, port: int | None = None) -> ProxyUser:
        """The user of a connection that came to `port` with that `Proxy-Authorization` header.

        Raises:
            PermissionError: a wrong key, or none where keys are compulsory; the text says what to set.
        """
        if port is not None and port in self._ports:
            return ProxyUser(self._ports[port])
        if header is None:
            if self.compulsory:
                raise PermissionError(f"This proxy needs a session and its key. {_HOW}")
            return ProxyUser(None)
        name, key = _basic(header)
        if self._mode == "off" or (not key and not self.compulsory):
            return ProxyUser(name)
        if not keys.check(self._home, name, key):
            raise PermissionError(f"Wrong key for session {name!r} in HTTPS_PROXY. {_HOW}")
        return ProxyUser(name)


def parse_session_ports(text: str) -> dict[int, str]:
    """Sessions by port, from `NAME=PORT` words separated by commas or blanks.

    Raises:
        ValueError: naming the word that is not understood.
    """
    ports: dict[int, str] = {}
    for word in text.replace(",", " ").split():
        name, _, port = word.rpartition("=")
        if not keys.is_session_name(name):
            raise ValueError(f"session port {word!r}: write NAME=PORT; a name is {keys.NAME_RULE}")
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise ValueError(f"session port {word!r}: {port!r} is no port")
        if int(port) in ports:
            raise ValueError(f"session port {word!r}: {port} is session {ports[int(port)]!r}'s already")
        ports[int(port)] = name
    return ports


def challenge(message: str) -> http.Response:
    """The 407 that says which variable to set."""
    body = f"harnesstap: {message}\n"
    headers = {"proxy-authenticate": 'Basic realm="harnesstap"', "content-type": "text/plain; charset=utf-8"}
    return http.Response.make(407, body, headers)


def refusal(host: str) -> http.Response:
    """The answer for a host that is no provider."""
    presets = ", ".join(PRESETS)
    body = (
        f"harnesstap: {host} is no model provider and this proxy lets nothing else out (tap_egress=refuse). "
        f"Start it with `tap up --allow {host}` to let it out ({presets} are words for several hosts), with "
        f"`--egress record` or `tunnel` to let all out, or with `--provider {host}=chat` if it serves a model.\n"
    )
    return http.Response.make(403, body, {"content-type": "text/plain; charset=utf-8"})


def _basic(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.strip().partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError(scheme)
        user, _, key = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as error:
        raise PermissionError(f"Unreadable Proxy-Authorization header. {_HOW}") from error
    name = unquote(user)  # some clients send the user as it stands in the URL
    if not keys.is_session_name(name):
        raise PermissionError(f"{name!r} cannot name a session ({keys.NAME_RULE}). {_HOW}")
    return name, key


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # "" is every interface, a name may be anything
