"""Who is calling, and what for, as far as the harness says so itself: by the proxy user, by headers, in the body.

The interceptor hands the session over in headers of ours on the loopback hop; a token known to both sides of the hop
keeps anyone else from claiming one by sending them.

What harnesses send was seen on real ones: Claude Code's request class and agent id, Codex's subagent and turn
metadata (in headers, or in the body over a WebSocket), opencode's and Kilo's parent session.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from certs import harnesses

SESSION_HEADER = "x-harnesstap-session"
HOST_HEADER = "x-harnesstap-host"
TOKEN_HEADER = "x-harnesstap-token"
OURS = (SESSION_HEADER, HOST_HEADER, TOKEN_HEADER)

Kind = Literal["main", "subagent", "compaction", "side"]
"""What a harness says a call is for. `side`: a title, a classifier, a summary: no agent's turn."""

_CONVERSATION_HEADERS = (
    "x-claude-code-session-id", "session-id", "session_id", "x-session-id", "x-session-affinity", "x-affinity",
    "thread-id", "conversation-id",
)  # fmt: skip
"""What harnesses send that names a run, most telling first (each seen on a real one)."""
_THREAD_HEADERS = (
    "x-claude-code-agent-id", "thread-id", "conversation-id", "x-session-id", "x-session-affinity", "session-id",
    "session_id", "x-claude-code-session-id",
)  # fmt: skip
"""What names one conversation within a run, most telling first."""

_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key", "authorization")
_SECRET = secrets.token_bytes(32)

_CLASSES: dict[str, Kind] = {
    "main": "main", "subagent": "subagent", "workflow": "subagent", "compaction": "compaction", "auxiliary": "side",
}  # fmt: skip
"""Claude Code's."""

_NAME = re.compile(r"[A-Za-z][\w.-]*")
_COUNT = re.compile(r"[0-9]{1,9}")
_VERSION = re.compile(r"\d+(?:\.\w+)+")


@dataclass(frozen=True, slots=True)
class Caller:
    """What is known of a caller besides its conversation.

    `credential` is a digest of the API key under a secret of this process: it tells one key from another and is never
    stored. `session` is the name from the proxy user, None for a plain proxy URL; `hint` then is the harness's own
    name of the run, None when it sends none. `thread` is its own name of the one conversation. `compacted` says
    that the harness made the conversation from a summary.
    """

    host: str
    session: str | None
    hint: str | None
    harness: str | None
    harness_version: str | None
    retry_count: int
    thread: str | None = None
    kind: Kind | None = None
    compacted: bool = False
    credential: bytes | None = None


def caller_of(headers: Mapping[str, str], *, trusted: bool, default_host: str) -> Caller:
    """Read a request's headers; `trusted` says that the hop's token was right, so ours count."""
    session = headers.get(SESSION_HEADER) if trusted else None
    host = headers.get(HOST_HEADER, default_host) if trusted else default_host
    hint = next((f"{h}:{run}" for h in _CONVERSATION_HEADERS if (run := _run(headers, h))), None)
    harness, version = _harness(headers.get("user-agent", ""))
    retries = headers.get("x-stainless-retry-count", "0")
    return Caller(
        host, session or None, hint, harness, version,
        int(retries) if _COUNT.fullmatch(retries) else 0,
        thread=next((headers[h] for h in _THREAD_HEADERS if headers.get(h)), None),
        kind=_kind(headers),
        compacted=_set(headers, "x-claude-code-context-compacted"),
        credential=_credential(headers),
    )  # fmt: skip


def _credential(headers: Mapping[str, str]) -> bytes | None:
    sent = next((headers[name] for name in _KEY_HEADERS if headers.get(name)), None)
    if sent is None:
        return None
    key = sent.strip().removeprefix("Bearer ").encode("utf-8", "surrogateescape")
    return hashlib.blake2b(key, key=_SECRET, digest_size=16).digest()


def _run(headers: Mapping[str, str], name: str) -> str | None:
    """The name of the run in a header; a subagent's run is its parent's."""
    parent = headers.get("x-parent-session-id") if name == "x-session-id" else None
    return parent or headers.get(name)


def with_body(caller: Caller, body: Mapping[str, Any]) -> Caller:
    """The same caller with what the body says that the headers did not.

    A name of the run is `prompt_cache_key`, or `metadata.sessionId`; Codex's `client_metadata` has, over a WebSocket,
    what is a header elsewhere.
    """
    sent = body.get("client_metadata")
    told = {k: v for k, v in sent.items() if isinstance(v, str)} if isinstance(sent, Mapping) else {}
    thread = told.get("thread_id") or _turn_metadata(told).get("thread_id")
    return replace(
        caller,
        hint=caller.hint or _body_hint(body),
        thread=caller.thread or (thread if isinstance(thread, str) else None),
        kind=caller.kind or _kind(told),
    )


def _body_hint(body: Mapping[str, Any]) -> str | None:
    key = body.get("prompt_cache_key")
    if isinstance(key, str) and key:
        return f"prompt_cache_key:{key}"
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        for name in ("sessionId", "session_id"):
            if isinstance(metadata.get(name), str) and metadata[name]:
                return f"metadata.{name}:{metadata[name]}"
    return None


def _kind(headers: Mapping[str, str]) -> Kind | None:
    """What a call is for; a class that says nothing to us says nothing."""
    if _set(headers, "x-claude-code-compaction"):
        return "compaction"
    told = _CLASSES.get(headers.get("x-claude-code-request-class", ""))
    if told is not None:
        return told
    metadata = _turn_metadata(headers)
    subagent = headers.get("x-openai-subagent") or metadata.get("subagent_kind")
    if subagent == "compact" or metadata.get("request_kind") in ("compact", "compaction"):
        return "compaction"
    if subagent or any(headers.get(name) for name in ("x-claude-code-agent-id", "x-parent-session-id")):
        return "subagent"
    return None


def _turn_metadata(headers: Mapping[str, str]) -> Mapping[str, Any]:
    """Codex's, JSON in a header."""
    try:
        value = json.loads(headers.get("x-codex-turn-metadata", "{}"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}


def _set(headers: Mapping[str, str], name: str) -> bool:
    return headers.get(name, "").strip().lower() not in ("", "0", "false", "none")


def _harness(agent: str) -> tuple[str | None, str | None]:
    """Name and version from a user agent such as `claude-cli/2.1.0 (external, cli)` or `OpenAI/Python 2.1.0`."""
    name, version = _NAME.match(agent), _VERSION.search(agent)
    if name is None:
        return None, None
    said = name.group().lower()
    return _agents().get(said, said), version.group() if version else None


@cache
def _agents() -> dict[str, str]:
    """What harnesses call themselves, to what we call them. Many only name the library they use."""
    return {harness.agent: harness.name for harness in harnesses.load().values() if harness.agent is not None}
