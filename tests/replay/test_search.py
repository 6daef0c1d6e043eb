from __future__ import annotations

from typing import Any

import pytest
from alembic import command
from sqlalchemy import text

from replay import store as store_module
from replay.reader import Reader
from replay.store import Store


def names(reader: Reader, query: str) -> list[str]:
    return [session.name for session in reader.sessions(text=query)]


@pytest.fixture
def said(make: Any) -> None:
    """Three sessions: one about quoting, one that runs pytest, one in Korean."""
    call = {
        "id": "c",
        "name": "bash",
        "arguments": '{"command": "pytest -x tests/test_foo.py\\n--last-failed", "n": 17}',
    }
    make.turn(make.session("quoting"), messages=[{"role": "user", "content": "Fix the Quoting of O'Brien's e-mail"}])
    make.turn(
        make.session("testing"),
        make.end(reply={"role": "assistant", "content": "", "reasoning": "Let me look.", "tool_calls": [call]}),
        messages=[{"role": "user", "content": "run the tests"}],
    )
    make.turn(make.session("korean"), messages=[{"role": "user", "content": "한국어로 GRÜSSE x" + "y" * 100}])


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("fix quoting", ["quoting"]),
        ("QUOTING the", ["quoting"]),
        ("o'brien", ["quoting"]),
        ('"quoting of"', ["quoting"]),
        ('"of quoting"', []),
        ("quot*", ["quoting"]),
        ("quot", []),
        ('"fix the quo"*', ["quoting"]),
        ("tests/test_foo.py", ["testing"]),  # arguments
        ("foo", ["testing"]),
        ("last failed command 17", ["testing"]),
        ("look", ["testing"]),  # reasoning
        ("bash", ["testing"]),
        ("the", ["testing", "quoting"]),
        ("run quoting", []),  # all in one message
        ("hello", ["korean", "quoting"]),  # the replies
        ("한국", ["korean"]),
        ("국한", []),
        ("grüsse", ["korean"]),
        ("grusse", []),
        ("x" + "y" * 100, ["korean"]),
        ("'); DROP TABLE turn; --", []),
        ("NOT the", []),
        ("a:b & (c | !d)", []),
    ],
)
def test_what_is_found(reader: Reader, query: str, found: list[str]) -> None:
    assert names(reader, query) == found


def test_a_search_for_nothing_is_refused(reader: Reader) -> None:
    with pytest.raises(ValueError, match="nothing to search for in '!!'"):
        reader.sessions(text="!!")


def test_a_message_is_indexed_once_however_often_it_is_sent(make: Any, store: Store, reader: Reader) -> None:
    for name in ("a", "b"):
        make.conversation(make.session(name), 3)
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM message")).scalar_one() == 3 + 1  # and the one reply
        assert connection.execute(text("SELECT count(*) FROM turn_message")).scalar_one() == 2 * 3 * 2
        assert connection.execute(text("SELECT count(*) FROM message_search")).scalar_one() == 4
    assert names(reader, "message 2") == ["b", "a"]


def test_a_huge_message_is_found_by_its_beginning(make: Any, reader: Reader) -> None:
    unlike = " ".join(f"word{number}" for number in range(100_000))
    make.turn(make.session("s"), messages=[{"role": "user", "content": unlike}])
    assert names(reader, "word77 word20000") == ["s"]
    assert names(reader, "word99999") == []


def test_an_older_record_is_indexed_when_it_is_opened(make: Any, store: Store, url: str) -> None:
    make.conversation(make.session("s"), 2)
    make.turn(make.session("t"), messages=[{"role": "user", "content": "find me"}])
    with store.write() as connection:
        command.downgrade(store_config(connection), "0001")
    with Store.open(url) as again:
        assert names(Reader(again), "find me") == ["t"]
        assert names(Reader(again), "hello") == ["t", "s"]


def store_config(connection: Any) -> Any:
    return store_module._config(connection)
