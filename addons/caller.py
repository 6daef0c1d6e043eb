"""Who is calling: the session, as told by the proxy user, by the harness's own headers, or not at all.

The interceptor hands this over in headers of ours on the loopback hop; a token known to both sides of the hop
keeps anyone else from claiming a session by sending them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SESSION_HEADER = "x-harnesstap-session"
HOST_HEADER = "x-harnesstap-host"
TOKEN_HEADER = "x-harnesstap-token"
OURS = (SESSION_HEADER, HOST_HEADER, TOKEN_HEADER)

_CONVERSATION_HEADERS = (
    "x-claude-code-session-id", "session-id", "session_id", "x-session-id", "x-session-affinity", "x-affinity",
    "thread-id", "conversation-id",
)  # fmt: skip
"""What harnesses send that names a conversation, most telling first (each seen on a real one)."""

_NAME = re.compile(r"[A-Za-z][\w.-]*")
_VERSION = re.compile(r"\d+(?:\.\w+)+")


@dataclass(frozen=True, slots=True)
class Caller:
    """What is known of a caller before its request is read.

    `session` is the name from the proxy user, None for a plain proxy URL; `hint` then is the harness's own
    name of the conversation, None when it sends none.
    """

    host: str
    session: str | None
    hint: str | None
    harness: str | None
    harness_version: str | None
    retry_count: int


def caller_of(headers: Mapping[str, str], *, trusted: bool, default_host: str) -> Caller:
    """Read a request's headers; `trusted` says that the hop's token was right, so ours count."""
    session = headers.get(SESSION_HEADER) if trusted else None
    host = headers.get(HOST_HEADER, default_host) if trusted else default_host
    hint = next((f"{h}:{headers[h]}" for h in _CONVERSATION_HEADERS if headers.get(h)), None)
    harness, version = _harness(headers.get("user-agent", ""))
    retries = headers.get("x-stainless-retry-count", "0")
    return Caller(
        host, session or None, hint, harness, version, int(retries) if retries.isascii() and retries.isdecimal() else 0
    )


def body_hint(body: Mapping[str, Any]) -> str | None:
    """A conversation name inside the body: `prompt_cache_key`, or `metadata.sessionId`."""
    key = body.get("prompt_cache_key")
    if isinstance(key, str) and key:
        return f"prompt_cache_key:{key}"
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        for name in ("sessionId", "session_id"):
            if isinstance(metadata.get(name), str) and metadata[name]:
                return f"metadata.{name}:{metadata[name]}"
    return None


def _harness(agent: str) -> tuple[str | None, str | None]:
    """Name and version from a user agent such as `claude-cli/2.1.0 (external, cli)` or `OpenAI/Python 2.1.0`."""
    name, version = _NAME.match(agent), _VERSION.search(agent)
    return name.group().lower() if name else None, version.group() if name and version else None
