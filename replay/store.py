"""The database: opened, brought to the newest schema, set up to lose nothing.

SQLite runs in WAL mode, so that any number of processes read while one writes, with synchronous=FULL: a
commit that returned survives power loss, because a harness that has seen the end of a reply never asks
again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from replay import codec

DEFAULT_URL = "sqlite:///harnesstap.db"
_MIGRATIONS = Path(__file__).parent / "migrations"
_BUSY_SECONDS = 60.0
_MIGRATION_LOCK = 0x68746170  # PostgreSQL advisory lock: "htap"
_MIGRATING = threading.Lock()  # Alembic's context is global to the process


class StoreError(Exception):
    """A database that cannot be used; the text says why and what to do."""


class MissingStore(StoreError):
    """There is no database at that URL, and none was to be made."""


@dataclass(frozen=True, slots=True)
class Store:
    """An open database. Threads may share it; processes open their own."""

    engine: Engine

    @classmethod
    def open(cls, url: str = DEFAULT_URL, *, create: bool = True) -> Self:
        """Open the database at `url` and migrate it to the newest schema.

        `create=False`, for commands that only look, raises MissingStore where there is no record yet.
        Raises StoreError for a URL or database that cannot be used.
        """
        parsed = _parse(url)
        if parsed.get_backend_name() == "sqlite":
            _prepare_file(parsed, create=create)
        try:
            engine = create_engine(
                parsed,
                json_serializer=_json_text,
                json_deserializer=codec.loads,
                pool_pre_ping=True,
                hide_parameters=True,  # what is said stays out of tracebacks and logs
            )
            if parsed.get_backend_name() == "sqlite":
                event.listen(engine, "connect", _on_connect)
                event.listen(engine, "begin", _on_begin)
            _migrate(engine, create=create)
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise StoreError(
                f"no driver for {_shown(parsed)}: {error}. For PostgreSQL: harnesstap[postgres]"
            ) from error
        except DBAPIError as error:
            raise StoreError(f"cannot open {_shown(parsed)}: {error.orig}") from error
        return cls(engine)

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """One write transaction, committed at the end; on SQLite it takes the write lock at once."""
        with self.engine.connect() as connection:
            connection = connection.execution_options(begin_statement="BEGIN IMMEDIATE")
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"{url!r} is not a database URL; for a file write sqlite:///{url}") from error
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreError(f"{_shown(parsed)}: the record lives in SQLite or PostgreSQL")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StoreError("an in-memory database would lose the record; write sqlite:///FILE")
    return parsed


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


def _prepare_file(url: URL, *, create: bool) -> None:
    path = Path(url.database or "")
    if path.exists():
        return
    if not create:
        raise _missing(f"no database at {path.absolute()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Prompts and code are nobody else's business; SQLite gives its -wal and -shm files the same mode.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(f"cannot make a database at {path}: {error.strerror}") from error


def _missing(why: str) -> MissingStore:
    return MissingStore(
        f"{why}. One comes to be when the proxy records its first call: "
        "start `tap up` (or `mitmdump -s addons/intercept.py`) and run a harness through it. "
        "For a record elsewhere use --store or HARNESSTAP_STORE."
    )


def _on_connect(connection: sqlite3.Connection, _: Any) -> None:
    connection.isolation_level = None  # BEGIN is ours: the driver's own would break savepoints
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin_statement", "BEGIN"))


def _json_text(value: Any) -> str:
    return codec.dumps(value).decode()


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _migrate(engine: Engine, *, create: bool) -> None:
    """Upgrade to head, once, however many processes open a new database at the same moment."""
    with engine.connect() as connection:
        scripts = ScriptDirectory.from_config(_config(connection))
        head = scripts.get_current_head()
        current = MigrationContext.configure(connection).get_current_revision()
        if current == head:
            return
        if current is None and not create:
            raise _missing(f"no record in {_shown(engine.url)}")
        if current is None and (tables := inspect(connection).get_table_names()) and "alembic_version" not in tables:
            raise StoreError(f"{_shown(engine.url)} holds something else: tables {', '.join(tables)}")
        if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
            raise StoreError(
                f"{_shown(engine.url)} was written by a newer harnesstap (schema {current}; ours is {head})"
            )
    with _MIGRATING, Store(engine).write() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        command.upgrade(_config(connection), "head")
