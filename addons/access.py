"""Who may use the proxy: the user and key in the proxy URL."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from mitmproxy import http

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
        listen_host: the proxy's own listening address; mitmproxy's empty default means every interface.
    """

    def __init__(self, home: Path, mode: str, listen_host: str) -> None:
        self._home = home
        self._mode = mode
        self.compulsory = mode == "required" or (mode == "auto" and not _is_loopback(listen_host))

    def check(self, header: str | None) -> ProxyUser:
        """The user of a `Proxy-Authorization` header.

        Raises:
            PermissionError: a wrong key, or none where keys are compulsory; the text says what to set.
        """
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


def challenge(message: str) -> http.Response:
    """The 407 that says which variable to set."""
    body = f"harnesstap: {message}\n"
    headers = {"proxy-authenticate": 'Basic realm="harnesstap"', "content-type": "text/plain; charset=utf-8"}
    return http.Response.make(407, body, headers)


def refusal(host: str) -> http.Response:
    """The answer for a host that is no provider."""
    body = (
        f"harnesstap: {host} is no model provider and this proxy lets nothing else out (tap_egress=refuse). "
        f"Start it with `tap up --egress tunnel` to allow it, or with `--provider {host}=chat` if it serves a model.\n"
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
