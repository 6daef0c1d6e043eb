from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import event

from replay.store import Store
from replay.view import queries


def test_the_version_of_all_pages_follows_what_they_show(make: Any, store: Store) -> None:
    def changes(change: Callable[[], Any]) -> None:
        before = queries.version(store.engine, None)
        assert queries.version(store.engine, None) == before
        change()
        assert queries.version(store.engine, None) != before

    session = make.session("s")
    changes(lambda: make.session("another"))
    changes(lambda: make.recorder.open_turn(make.new_turn(session)).result())
    changes(lambda: make.recorder.finish_turn(1, make.end()).result())
    changes(lambda: make.recorder.score("s", 1.0).result())
    changes(lambda: make.recorder.score("s", None).result())
    changes(lambda: make.recorder.score("s", None, status="done").result())


def test_the_version_of_a_session_follows_it_alone(make: Any, store: Store) -> None:
    session = make.session("s")
    before = queries.version(store.engine, session)
    make.turn(make.session("another"))
    assert queries.version(store.engine, session) == before
    make.turn(session)
    with_a_turn = queries.version(store.engine, session)
    assert with_a_turn != before
    make.recorder.score("s", 0.5).result()
    assert queries.version(store.engine, session) != with_a_turn


def test_harnesses_are_named_once_in_order(make: Any, store: Store) -> None:
    assert queries.harnesses(store.engine) == []
    for number, harness in enumerate(("pi", "codex", None, "pi", "", "codex")):
        make.session(f"s{number}", harness=harness)
    assert queries.harnesses(store.engine) == ["", "codex", "pi"]


def test_groups_come_newest_first_page_by_page_with_all_their_sessions(make: Any, store: Store) -> None:
    for number, group in enumerate(("a", "b", None, "c", "a")):
        make.session(f"s{number}", group=group)
    first = queries.groups(store.engine, before=None, limit=2)
    assert [(one.name, one.sessions) for one in first] == [("a", 2), ("c", 1)]
    rest = queries.groups(store.engine, before=first[-1].last, limit=2)
    assert [(one.name, one.sessions) for one in rest] == [("b", 1)]


def test_an_open_page_reads_no_table_whole(tmp_path: Path) -> None:
    asked: list[tuple[str, Any]] = []
    with Store.open(f"sqlite:///{tmp_path}/record.db") as store:
        event.listen(
            store.engine, "before_cursor_execute", lambda _, __, sql, values, *___: asked.append((sql, values))
        )
        queries.version(store.engine, None)
        queries.harnesses(store.engine)
        with store.engine.connect() as connection:
            plans = [
                row[3]
                for sql, values in list(asked)
                if sql.startswith("SELECT")
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)
            ]
    assert len(plans) >= 8
    assert not {"SCAN session", "SCAN turn"} & set(plans)
    assert plans.count("SEARCH session") == 1  # the greatest id; of another column it would be a scan
