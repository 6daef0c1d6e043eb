"""Which weights sampled which tokens: what is stored of it, and what is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from alembic import command
from sqlalchemy import text

from replay import store as store_module
from replay.reader import Reader
from replay.store import Store
from replay.versions import VersionSpan, clipped, spans_of, told

MIXED = (VersionSpan("3", 0, 2), VersionSpan("4", 2, 3))


def test_a_turn_that_a_push_came_into(make: Any, reader: Reader, replay: Any) -> None:
    """Asked under version 2, sampled under 3 and 4: what the engine tells counts, at both ends too."""
    turn = reader.turn(make.turn(make.session("s"), make.end([7, 8, 9], weight_versions=MIXED), weight_version="2"))
    assert (turn.weight_version, turn.weight_version_end) == ("3", "4")
    assert turn.weight_versions == [
        {"version": "3", "start": 0, "end": 2}, {"version": "4", "start": 2, "end": 3},
    ]  # fmt: skip
    assert spans_of(turn) == MIXED
    assert told(turn) == "3→4@2"
    assert "sampled 3  3→4@2" in replay("show", "s", "--no-messages").output
    [document] = json.loads(replay("show", "s", "--json").output)["turns"]
    assert document["weight_versions"] == turn.weight_versions


def test_one_version_throughout_takes_no_room(make: Any, reader: Reader) -> None:
    one = make.end([7, 8], weight_versions=(VersionSpan("3", 0, 2),))
    turn = reader.turn(make.turn(make.session(), one, weight_version="2"))
    assert (turn.weight_version, turn.weight_version_end, turn.weight_versions) == ("3", "3", None)
    assert spans_of(turn) == (VersionSpan("3", 0, 2),)
    assert told(turn) == "3"


@pytest.mark.parametrize(
    ("start", "end", "version", "line"),
    [
        ("3", "3", "3", "3"),
        ("3", "4", None, "3→4@?"),  # somewhere between
        ("3", None, None, "3"),  # the server was gone when it was asked again
        (None, None, None, ""),
    ],
)
def test_an_engine_that_does_not_tell(
    make: Any, reader: Reader, start: str | None, end: str | None, version: str | None, line: str
) -> None:
    turn = reader.turn(make.turn(make.session(), make.end([7, 8], weight_version_end=end), weight_version=start))
    assert spans_of(turn) == (VersionSpan(version, 0, 2),)
    assert told(turn) == line


def test_nothing_sampled_has_no_span(make: Any, reader: Reader) -> None:
    assert spans_of(reader.turn(make.turn(make.session(), make.end((), status="failed")))) == ()


@pytest.mark.parametrize(
    "spans",
    [
        (VersionSpan("3", 0, 2),),
        (VersionSpan("3", 0, 4),),
        (VersionSpan("3", 1, 3),),
        (VersionSpan("3", 0, 1), VersionSpan("4", 2, 3)),
        (VersionSpan("3", 0, 3), VersionSpan("4", 3, 3)),
        (VersionSpan("3", 0, 2), VersionSpan(None, 2, 3)),
    ],
)
def test_spans_that_are_not_those_of_the_tokens_are_refused(make: Any, spans: tuple[VersionSpan, ...]) -> None:
    with pytest.raises(ValueError, match="weight versions of 3 sampled tokens do not stand in line"):
        make.end([7, 8, 9], weight_versions=spans)


def test_of_a_reply_that_was_cut_only_what_was_kept() -> None:
    assert clipped(MIXED, 3) == MIXED
    assert clipped(MIXED, 2) == MIXED[:1]
    assert clipped(MIXED, 1) == (VersionSpan("3", 0, 1),)
    assert clipped(MIXED, 0) == ()


def test_the_column_comes_and_goes(make: Any, store: Store, reader: Reader) -> None:
    """A record of before 0003 is upgraded in place."""
    turn = make.turn(make.session(), make.end([7, 8, 9], weight_versions=MIXED))
    with store.write() as connection:
        command.downgrade(store_module._config(connection), "0002")
        left = connection.execute(text("SELECT weight_version, weight_version_end, n_sampled FROM turn")).one()
        assert tuple(left) == ("3", "4", 3)
        command.upgrade(store_module._config(connection), "head")
    assert told(reader.turn(turn)) == "3→4@?"
    assert reader.sampled(turn)[0] == [7, 8, 9]
