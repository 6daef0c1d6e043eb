from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text

from replay import store as store_module
from replay.schema import Base
from replay.store import MissingStore, Store, StoreError


def test_the_migrations_make_what_the_models_say(store: Store) -> None:
    with store.engine.connect() as connection:
        # FTS5 makes tables of its own beside the one it was asked for; none of them is a model's.
        ours = {"include_name": lambda name, kind, _: kind != "table" or not str(name).startswith("message_search")}
        options = {"compare_type": True, "compare_server_default": True, **ours}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


def test_the_migrations_make_the_models_check_constraints(store: Store) -> None:  # Alembic does not compare these
    for table in Base.metadata.sorted_tables:
        declared = {c.name for c in table.constraints if type(c).__name__ == "CheckConstraint"}
        made = {str(c["name"]) for c in inspect(store.engine).get_check_constraints(table.name)}
        assert declared == made, table.name


def test_downgrade_leaves_nothing(store: Store) -> None:
    with store.write() as connection:
        command.downgrade(store_module._config(connection), "base")
    assert inspect(store.engine).get_table_names() == ["alembic_version"]


def test_opening_again_keeps_what_is_there(url: str) -> None:
    with Store.open(url) as first, first.write() as connection:
        connection.execute(text("INSERT INTO session (name, status, created_at) VALUES ('a', 'open', 0)"))
    with Store.open(url, create=False) as second, second.engine.connect() as connection:
        assert connection.execute(text("SELECT name FROM session")).scalar_one() == "a"


def _open_at_once(url: str, barrier: Any) -> None:
    barrier.wait(60)
    Store.open(url).close()


def test_many_processes_open_a_new_database_at_once(url: str) -> None:
    forking = multiprocessing.get_context("fork")
    barrier = forking.Barrier(8)
    processes = [forking.Process(target=_open_at_once, args=(url, barrier)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8


def test_many_threads_open_a_new_database_at_once(url: str) -> None:
    barrier = threading.Barrier(8)
    with ThreadPoolExecutor(8) as threads:
        for future in [threads.submit(_open_at_once, url, barrier) for _ in range(8)]:
            future.result()


def test_sqlite_is_set_up_to_survive_power_loss(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/sub/record.db") as store, store.engine.connect() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
        assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    assert (tmp_path / "sub" / "record.db").stat().st_mode & 0o777 == 0o600


def test_looking_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(MissingStore, match="tap up"):
        Store.open(f"sqlite:///{tmp_path}/none.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_looking_at_an_empty_database_says_so(url: str) -> None:
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).touch()
    with pytest.raises(MissingStore, match="no record in"):
        Store.open(url, create=False)


def test_a_database_of_something_else_is_left_alone(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE customers (id INTEGER)"))
    with pytest.raises(StoreError, match="something else: tables customers"):
        Store.open(url)
    assert inspect(engine).get_table_names() == ["customers"]
    engine.dispose()


def test_a_newer_schema_is_refused(url: str) -> None:
    with Store.open(url) as store, store.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="newer harnesstap"):
        Store.open(url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("record.db", "write sqlite:///record.db"),
        ("sqlite://", "in-memory"),
        ("mysql://root:hunter2@h/x", "SQLite or PostgreSQL"),
        ("postgresql+psycopg://me:hunter2@127.0.0.1:1/x", "cannot open postgresql"),
        ("sqlite:////proc/no/record.db", "cannot make a database"),
    ],
)
def test_urls_that_cannot_be_used(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        Store.open(url)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("certainly not SQLite " * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store.open(f"sqlite:///{tmp_path}/x.db")
