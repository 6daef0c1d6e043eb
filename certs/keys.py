"""Session keys: a harness proves with every CONNECT that it may speak for its session.

A key is a function of the session's name and of one secret, so there is nothing to register and nothing to
look up: any process that can read the secret can make the key of any session, and the proxy checks it by
making it again. The pair travels as the user and password of the proxy URL.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from pathlib import Path

from certs.files import TrustError, certs_directory, locked, write_atomic

SECRET_FILE = "session-secret"
SECRET_BYTES = 32
KEY_LENGTH = 32
"""Hexadecimal characters of a key: 128 bits of the HMAC."""

# No ":": RFC 7617 forbids it in a user name, and aiohttp refuses to send one. No "%": a client that forgets
# to decode the user of its proxy URL is told apart from one that does. No "/": the name is safe in file
# names.
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,200}")
NAME_RULE = "1 to 200 of ASCII letters, digits and . _ @ -"


def is_session_name(name: str) -> bool:
    """Whether `name` can name a session, that is, survive in a proxy URL: see `NAME_RULE`."""
    return _NAME.fullmatch(name) is not None


def ensure_secret(home: Path) -> bytes:
    """The 32 random bytes of `<home>/certs/session-secret` (0600), made on first use.

    Raises:
        TrustError: if the file does not hold 32 bytes. It is never replaced: every key in use hangs on it.
    """
    path = certs_directory(home) / SECRET_FILE
    if not path.exists():
        with locked(path.parent):
            if not path.exists():  # another process may have been first
                write_atomic(path, secrets.token_bytes(SECRET_BYTES), 0o600)
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise TrustError(f"{path} holds {len(secret)} bytes, not {SECRET_BYTES}: delete it to make a new one")
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    return secret


def session_key(home: Path, name: str) -> str:
    """The key of session `name`: the first 32 hex characters of HMAC-SHA256(secret, name).

    Raises:
        ValueError: if `name` cannot name a session.
    """
    if not is_session_name(name):
        raise ValueError(f"{name!r} cannot name a session: {NAME_RULE}")
    return hmac.new(ensure_secret(home), name.encode(), hashlib.sha256).hexdigest()[:KEY_LENGTH]


def check(home: Path, name: str, key: str) -> bool:
    """Whether `key` is the key of session `name`, in time that does not depend on where they differ.

    A name that cannot name a session has no key: the answer is no, not an error.
    """
    return is_session_name(name) and hmac.compare_digest(session_key(home, name).encode(), key.encode())


def key_hash(key: str) -> str:
    """SHA-256 of `key` in hex: what the record keeps, since a key itself is never written down."""
    return hashlib.sha256(key.encode()).hexdigest()
