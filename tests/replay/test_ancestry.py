"""What placing a call asks of the record, on each database."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from replay.ancestry import FEW, Ancestry
from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def ancestry(store: Store) -> Ancestry:
    return Ancestry(store)


def ids(turns: list[Any]) -> list[int]:
    return [turn.id for turn in turns]


def test_turns_by_what_they_left_behind(make: Any, ancestry: Ancestry) -> None:
    one, two = make.session("one"), make.session("two")
    old, new = (make.turn(one, make.end(after_digest=digest("x"))) for _ in range(2))
    other = make.turn(two, make.end(after_digest=digest("x")))
    assert ids(ancestry.after([digest("y"), digest("x")], one)) == [new, old]
    assert ids(ancestry.after([digest("x")])) == [other, new, old]
    assert ancestry.after([digest("y")]) == []


def test_no_question_gives_more_than_a_few(make: Any, ancestry: Ancestry) -> None:
    session = make.session()
    turns = [make.turn(session, make.end(after_digest=digest("x")), opening=digest("o")) for _ in range(FEW + 2)]
    newest = turns[:1:-1]
    assert ids(ancestry.after([digest("x")], session)) == ids(ancestry.roots(session)) == newest


def test_roots_and_children(make: Any, ancestry: Ancestry) -> None:
    session = make.session()
    root = make.turn(session, opening=digest("o"))
    refused = make.end(status="failed", sampled=(), finish=None, reply=None)
    make.turn(session, refused, opening=digest("o"))
    other = make.turn(session, opening=digest("p"))
    kids = [make.turn(session, parent_id=root, prompt_length=3 + 2 + 3) for _ in range(2)]
    assert ids(ancestry.roots(session)) == [other, root]
    assert ids(ancestry.roots(session, digest("o"))) == [root]
    assert ids(ancestry.children(root)) == kids[::-1]
    assert ancestry.children(other) == []


def test_sessions_that_called_before(make: Any, ancestry: Ancestry) -> None:
    session = make.session()
    assert not ancestry.has_turns(session)
    make.turn(session)
    assert ancestry.has_turns(session)


def test_summaries(make: Any, ancestry: Ancestry) -> None:
    session = make.session()
    first, _, last = (make.turn(session, purpose=purpose) for purpose in ("compaction", "main", "compaction"))
    assert ids(ancestry.summaries(session, 4)) == [last, first]
    assert ids(ancestry.summaries(session, 1)) == [last]


def test_what_was_not_delivered(make: Any, recorder: Recorder, ancestry: Ancestry) -> None:
    session = make.session()
    first = make.turn(session, body_digest=digest("b"))
    assert ancestry.undelivered(session, digest("b")) == first
    assert ancestry.undelivered(session, digest("c")) is None
    again = make.turn(session, body_digest=digest("b"), retry_of=first)
    recorder.mark_delivered(again, 1.0).result(30)
    assert ancestry.undelivered(session, digest("b")) is None


def test_the_past_of_a_turn(make: Any, ancestry: Ancestry, reader: Reader) -> None:
    turns = make.conversation(make.session(), 3)
    past = ancestry.past(reader.turn(turns[-1]))
    said = [None if message is None else message["content"][:10] for message in past]
    assert said == ["message 0 ", None, "message 1 ", None, "message 2 "]


def test_a_root_that_was_a_side_call(make: Any, recorder: Recorder, reader: Reader) -> None:
    turn = make.turn(make.session())
    recorder.set_aside(turn, "title").result(30)
    assert (reader.turn(turn).purpose, reader.turn(turn).drift_reason) == ("title", "subagent")
    with pytest.raises(ValueError, match="'fun' is none of main"):
        recorder.set_aside(turn, "fun")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no turn 404"):
        recorder.set_aside(404, "title").result(30)
