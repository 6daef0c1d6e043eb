"""Which process samples an open turn, and whether that process still lives.

A proxy that is killed cannot close its turns. So each recorder that opens turns holds a lock under a name of its own,
which stands in the turns' `owner`: for SQLite a locked file beside the database, for PostgreSQL an advisory lock of a
connection. The operating system, or the server, gives it back at the moment the process is gone, however it went;
whoever can take it knows. No clock is asked, so a machine that slept, or one whose time is wrong, loses no turn.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text

from replay.store import Store


@dataclass(frozen=True, slots=True)
class Owner:
    """A held lock. Release it when no turn of this owner is open any more."""

    name: str
    release: Callable[[], None]


def take(store: Store) -> Owner:
    """Become an owner."""
    name = f"{os.getpid()}-{secrets.token_hex(8)}"
    if store.engine.dialect.name != "sqlite":
        # The lock is the connection's, so no transaction is to stay open with it.
        connection = store.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _key(name)})

        def disconnect() -> None:
            connection.invalidate()  # closed for good: the pool would keep it, and the lock with it
            connection.close()

        return Owner(name, disconnect)
    path = _path(store, name)
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)

    def unlock() -> None:
        path.unlink(missing_ok=True)
        os.close(handle)

    return Owner(name, unlock)


def is_gone(store: Store, name: str) -> bool:
    """Whether nobody holds the lock of this owner any more."""
    if store.engine.dialect.name != "sqlite":
        with store.engine.connect() as connection:
            key = {"key": _key(name)}
            free = bool(connection.execute(text("SELECT pg_try_advisory_lock(:key)"), key).scalar())
            if free:
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)
        return free
    path = _path(store, name)
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    with contextlib.closing(os.fdopen(handle, "rb")):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        path.unlink(missing_ok=True)
    return True


def _path(store: Store, name: str) -> Path:
    return Path(f"{store.engine.url.database}-owner-{name}")


def _key(name: str) -> int:
    """A PostgreSQL lock's key: 64 bits, signed."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
