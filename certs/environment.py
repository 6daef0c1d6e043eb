"""The environment of a harness process: through which proxy it goes, and whom it trusts. Nothing else.

Model choice, base URLs and API keys stay as the user has them: the harness must be the program people ship,
configured as they run it. Whatever key it sends ends at our proxy, which speaks TLS itself and drops it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
"""Both cases: curl reads only `http_proxy`, some programs only capitals."""

NO_PROXY_VARIABLES = ("NO_PROXY", "no_proxy")
NO_PROXY = "localhost,127.0.0.1,::1"
"""What goes direct. The user's own value is replaced, not kept: an entry such as `*` or `.anthropic.com` in
it would let calls pass the proxy by, unseen and unrecorded. Other hosts go the way the proxy lets them."""

CA_VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL and everything on it (Python, httpx), Go, rustls-native-certs, uv
    "NODE_EXTRA_CA_CERTS",  # Node, Bun, Deno >= 2.8
    "REQUESTS_CA_BUNDLE",  # requests, which asks certifi otherwise
    "CURL_CA_BUNDLE",  # curl and requests
    "GIT_SSL_CAINFO",  # git over libcurl-gnutls does not ask SSL_CERT_FILE
    "CODEX_CA_CERTIFICATE",  # Codex
    "DENO_CERT",  # Deno < 2.8
    "NIX_SSL_CERT_FILE",  # Nix's OpenSSL asks it before SSL_CERT_FILE
)
"""Every one names the bundle, which holds the roots of the system too, so that a variable that replaces the
client's trust and one that adds to it do equally well. Left out on purpose, since their users never call a
provider: PIP_CERT, npm_config_cafile, CARGO_HTTP_CAINFO (package registries are never intercepted),
AWS_CA_BUNDLE, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH, HTTPLIB2_CA_CERTS (other protocols)."""

DUMMY_KEY = "harnesstap-dummy"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def proxy_url(host: str, port: int, session: str | None = None, key: str | None = None) -> str:
    """`http://session:key@host:port`, percent-encoded, an IPv6 host in brackets; without a session only the
    address.

    Raises:
        ValueError: if only one of `session` and `key` is given.
    """
    if (session is None) != (key is None):
        raise ValueError("a proxy URL needs both session and key, or neither")
    user = "" if session is None or key is None else f"{quote(session, safe='')}:{quote(key, safe='')}@"
    return f"http://{user}{f'[{host}]' if ':' in host else host}:{port}"


def harness_environment(proxy: str, bundle: Path) -> dict[str, str]:
    """The variables to set for a harness.

    Args:
        proxy: the proxy's URL, see :func:`proxy_url`.
        bundle: PEM file of the system's roots and our CA; a relative path is made absolute.
    """
    trusted = str(bundle.absolute())
    return {
        **dict.fromkeys(PROXY_VARIABLES, proxy),
        **dict.fromkeys(NO_PROXY_VARIABLES, NO_PROXY),
        **dict.fromkeys(CA_VARIABLES, trusted),
        "NODE_USE_ENV_PROXY": "1",  # without it the fetch of Node >= 24 passes the proxy by
    }


def dummy_keys(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """A placeholder for each variable of `names` that `environ` leaves unset or empty.

    Never done unasked: most harnesses choose their provider, or their way to log in, by which key is
    present, so a placeholder more can change what they do. The user's own key is never replaced.

    Raises:
        ValueError: if a name cannot be an environment variable's.
    """
    names = tuple(names)
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of an environment variable")
    return {name: DUMMY_KEY for name in names if not environ.get(name)}
