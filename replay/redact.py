"""Credentials out, before anything is hashed or stored.

Request headers never reach the record. Credentials also travel in URLs (Gemini's `?key=`), in fields of the
body (an MCP server's `headers`, an `api_key`), and inside error texts. They become `[redacted]`, visibly.
The conversation itself (the items of `messages`, `input`, `contents`) is not touched: it is what is trained
on, the token ids hold it anyway, and a record that differs from what the model saw would be worth nothing.
"""

from __future__ import annotations

import re
from typing import Any

from replay import codec

REDACTED = "[redacted]"

# How a credential's field ends, in lower case without - and _: x-goog-api-key, ANTHROPIC_API_KEY, Set-Cookie.
_NAMES = (
    "authorization", "cookie", "apikey", "secretkey", "privatekey", "accesskey", "accesstoken", "authtoken",
    "bearertoken", "refreshtoken", "sessiontoken", "idtoken", "clientsecret", "password", "passwd", "credentials",
)  # fmt: skip
_IN_JSON = tuple(f'{name}":'.encode() for name in _NAMES)
_QUERY = re.compile(
    r"([?&;](?:key|token|sig|signature|secret|password|[\w-]*(?:api[-_]?key|access[-_]?key|auth|token))=)[^&\s#\"']+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@\"']+@", re.IGNORECASE)


def url(text: str) -> str:
    """A URL, or a path with its query, without credentials."""
    return _USERINFO.sub(rf"\1{REDACTED}@", _QUERY.sub(rf"\1{REDACTED}", text))


def fields(value: Any) -> Any:
    """`value` (JSON) with the text of every credential field replaced; itself when it has none."""
    data = codec.dumps(value)
    flat = data.lower().translate(None, b"-_")
    if not any(name in flat for name in _IN_JSON):  # some 0.1 ms for the tools of a harness; a walk takes 20 times that
        return value
    return _walk(codec.loads(data), texts=False)


def everything(value: Any) -> Any:
    """As `fields`, and credentials inside texts too (URLs, `Bearer ...`): for errors and metadata."""
    return _walk(codec.loads(codec.dumps(value)), texts=True)


def _walk(root: Any, *, texts: bool) -> Any:
    """Redact a value of our own in place. Iterative: bodies may nest deep."""
    holder = [root]
    stack: list[Any] = [holder]
    while stack:
        item = stack.pop()
        pairs = list(item.items()) if isinstance(item, dict) else list(enumerate(item))
        for key, child in pairs:
            secret = isinstance(key, str) and key.lower().replace("-", "").replace("_", "").endswith(_NAMES)
            if secret and isinstance(child, str) and child:
                item[key] = REDACTED
            elif secret and isinstance(child, list) and child and all(isinstance(one, str) for one in child):
                item[key] = [REDACTED] * len(child)
            elif isinstance(child, dict | list):
                stack.append(child)
            elif texts and isinstance(child, str):
                item[key] = _BEARER.sub(rf"\1 {REDACTED}", url(child))
    return holder[0]
