from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete
from sqlalchemy.orm.exc import DetachedInstanceError

from replay import redact
from replay.reader import Reader, UnknownSession
from replay.records import NewBatch, NewBatchRow
from replay.schema import Blob
from replay.store import Store
from replay.writer import Recorder
from tests.replay.conftest import Maker

texts = st.text(st.characters(exclude_categories=[]), max_size=300)
names = texts.filter(lambda name: redact.fields({name: "x"}) == {name: "x"})  # a credential's does not come back
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
requests = st.dictionaries(st.sampled_from(["messages", "system", "tools", "model"]) | names, values, max_size=5)
histories = st.lists(st.lists(values, max_size=4), min_size=1, max_size=4)


@given(first=requests, growth=histories)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_come_back_value_for_value(make: Any, reader: Reader, first: dict[str, Any], growth: Any) -> None:
    """Bodies of a conversation whose history grows, through the database."""
    session_id = make.session()
    sent: list[dict[str, Any]] = []
    ids: list[int] = []
    for number, new in enumerate(growth):
        body = {**first, "messages": [*(sent[-1]["messages"] if sent else []), *new]}
        sent.append(body)
        length = 3 + 5 * number
        ids.append(make.turn(session_id, parent_id=ids[-1] if ids else None, prompt_length=length, request=body))
    assert [repr(reader.request(reader.turn(turn_id))) for turn_id in ids] == [repr(body) for body in sent]


def test_a_session_comes_back_exactly(make: Any, reader: Reader) -> None:
    ids = make.conversation(make.session("s", harness="codex"), 3)
    turns = reader.turns(reader.session("s"))
    assert [turn.id for turn in turns] == ids
    first, second = list(range(10)), list(range(10, 20))
    assert reader.prompt_ids(turns[0]) == first
    assert reader.prompt_ids(turns[2]) == [*first, 7, 8, *second, 7, 8, *range(20, 30)]
    assert [len(reader.prompt_ids(turn)) for turn in turns] == [turn.prompt_length for turn in turns]
    assert [turn.suffix_length for turn in turns] == [10, 10, 10]
    assert reader.sampled(turns[1]) == ([7, 8], [-0.5, -0.5])
    assert [turn.id for turn in reader.path(turns[2])] == ids
    assert [m["role"] for m in reader.messages(turns[2])] == ["user", "assistant", "user", "assistant", "user"]
    assert reader.new_messages(turns[2]) == [reader.messages(turns[2])[-1]]
    assert reader.request(turns[2])["messages"] == reader.messages(turns[2])


def test_forks_share_their_past(make: Any, reader: Reader) -> None:
    session_id = make.session()
    root = make.turn(session_id)
    left = make.turn(session_id, make.end([50]), parent_id=root, prompt_suffix=[40], prompt_length=6)
    right = make.turn(session_id, make.end([51]), parent_id=root, prompt_suffix=[41], prompt_length=6)
    assert reader.prompt_ids(left) == [1, 2, 3, 7, 8, 40]
    assert reader.prompt_ids(right) == [1, 2, 3, 7, 8, 41]


def test_a_cached_reader_sees_a_turn_end(make: Any, recorder: Recorder, reader: Reader) -> None:
    session_id = make.session()
    turn_id = recorder.open_turn(make.new_turn(session_id)).result()
    assert reader.prompt_ids(turn_id) == [1, 2, 3]
    assert reader.sampled(turn_id) == ([], [])
    recorder.finish_turn(turn_id, make.end([9])).result()
    child = make.turn(session_id, parent_id=turn_id, prompt_suffix=[4], prompt_length=5)
    assert reader.prompt_ids(child) == [1, 2, 3, 9, 4]


def test_every_column_of_a_turn(make: Any, recorder: Recorder, reader: Reader) -> None:
    session_id = make.session()
    opening, after = hashlib.sha256(b"o").hexdigest(), hashlib.sha256(b"a").hexdigest()
    before = make.turn(session_id, make.end((), status="failed", error={"status": 503}))
    turn_id = make.turn(
        session_id,
        make.end(weight_version_end="v2", first_token_at=11.0, done_at=12.0, after_digest=after, stop_sequence="END"),
        route="/v1/messages?beta=true", dialect="messages", purpose="subagent", drift_reason="subagent",
        opening=opening, reply_id="resp_1",
        received_at=10.0, retry_of=before, ignored_fields=("store", "user"),
    )  # fmt: skip
    recorder.mark_delivered(turn_id, 13.0).result()
    turn = reader.turn(turn_id)
    found = {
        name: getattr(turn, name)
        for name in (
            "session_id", "parent_id", "retry_of", "purpose", "dialect", "route", "model", "status", "finish",
            "stop_sequence", "usage", "sampling_asked", "sampling_sent", "ignored_fields", "drift_reason",
            "template_hash", "weight_version", "weight_version_end", "opening", "reply_id",
            "after_digest", "received_at",
            "first_token_at", "done_at", "delivered_at", "error", "untrainable",
        )
    }  # fmt: skip
    assert found == {
        "session_id": session_id, "parent_id": None, "retry_of": before, "purpose": "subagent",
        "dialect": "messages", "route": "/v1/messages?beta=true", "model": "gpt-5", "status": "complete",
        "finish": "stop", "stop_sequence": "END", "usage": {"prompt": 3, "completion": 2},
        "sampling_asked": {"temperature": 0.5}, "sampling_sent": {"temperature": 0.5, "max_tokens": 8192},
        "ignored_fields": ["store", "user"], "drift_reason": "subagent", "template_hash": "t1",
        "weight_version": "v1", "weight_version_end": "v2", "opening": opening,
        "reply_id": "resp_1", "after_digest": after,
        "received_at": 10.0, "first_token_at": 11.0, "done_at": 12.0, "delivered_at": 13.0, "error": None,
        "untrainable": None,
    }  # fmt: skip
    assert reader.turn(before).error == {"status": 503}


def test_bulk_columns_are_not_loaded_by_accident(make: Any, reader: Reader) -> None:
    turn = reader.turn(make.turn(make.session()))
    with pytest.raises(DetachedInstanceError, match="deferred"):
        _ = turn.sampled


def test_look_ups_of_the_gateway(make: Any, reader: Reader) -> None:
    def digest(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    one, two = make.session("one"), make.session("two")
    old, new = make.turn(one, body_digest=digest("b")), make.turn(one, body_digest=digest("b"))
    make.turn(two, body_digest=digest("b"))
    assert reader.session_name(two) == "two"
    assert [turn.id for turn in reader.turns_by_body(reader.session("one"), digest("b"))] == [old, new]
    with pytest.raises(LookupError, match="no session with id 404"):
        reader.session_name(404)


def test_sessions_by_filter(make: Any, recorder: Recorder, reader: Reader) -> None:
    make.session("a-1", harness="codex", task="t1", group="g1")
    make.session("a-2", harness="codex", task="t2", group="g1")
    make.session("b_1", harness="pi", task="t1", group="g2")
    recorder.score("a-1", 1.0, status="done").result()
    recorder.score("a-2", 0.0).result()

    def names(**filters: Any) -> list[str]:
        return [session.name for session in reader.sessions(**filters)]

    assert names() == ["b_1", "a-2", "a-1"]
    assert names(limit=1) == ["b_1"]
    assert names(harness="codex") == ["a-2", "a-1"]
    assert names(task="t1", group="g1") == ["a-1"]
    assert names(status="open") == ["b_1", "a-2"]
    assert names(reward_min=0.0) == ["a-2", "a-1"]  # NULL is not 0
    assert names(reward_max=0.5) == ["a-2"]
    assert names(prefix="a-") == ["a-2", "a-1"]
    assert names(prefix="a_") == []


def test_an_unknown_session_names_its_neighbours(make: Any, reader: Reader) -> None:
    for name in ("fix-tests-1", "fix-tests-2", "other"):
        make.session(name)
    with pytest.raises(UnknownSession, match=r"no session 'fix-test-1'; near: fix-tests-1"):
        reader.session("fix-test-1")
    with pytest.raises(UnknownSession, match=r"near: .*other"):
        reader.session("oth")
    with pytest.raises(UnknownSession, match=r"no session 'zzzz'$"):
        reader.session("zzzz")


def test_overview_counts(make: Any, reader: Reader) -> None:
    session_id = make.session("s")
    root = make.turn(session_id)
    make.turn(session_id, parent_id=root, prompt_suffix=[4], prompt_length=6)
    make.turn(session_id, parent_id=root, prompt_suffix=[5, 6], prompt_length=7)
    make.turn(session_id, make.end((), status="failed"), parent_id=root, prompt_suffix=[4], prompt_length=6)
    make.turn(session_id, drift_reason="compaction")
    make.session("empty")
    empty, full = reader.overview(reader.sessions())
    assert (full.turns, full.sequences, full.prompt_tokens, full.new_tokens, full.sampled_tokens) == (5, 3, 25, 10, 8)
    assert (empty.turns, empty.sequences, empty.sampled_tokens) == (0, 0, 0)


def test_groups_are_complete_and_used_once(make: Any, recorder: Recorder, reader: Reader) -> None:
    turns: dict[str, int] = {}
    for group, statuses in {"g1": "dd", "g2": "do", "g3": "df", "g4": "d"}.items():
        for number, status in enumerate(statuses):
            name = f"{group}-{number}"
            turns[name] = make.turn(
                make.session(name, group=group, task=f"t-{group}"), weight_version="v2" if group == "g3" else "v1"
            )
            if status != "o":
                recorder.score(name, None, None, "done" if status == "d" else "failed").result()
    make.session("alone")

    def found(**filters: Any) -> dict[str, tuple[list[str], list[str]]]:
        return {
            group.name: ([s.name for s in group.sessions], [s.name for s in group.failed])
            for group in reader.groups(**filters)
        }

    assert found(min_size=2) == {"g1": (["g1-0", "g1-1"], []), "g3": (["g3-0"], ["g3-1"])}
    assert list(found()) == ["g1", "g3", "g4"]
    assert list(found(limit=2)) == ["g1", "g3"]
    assert list(found(task="t-g3")) == ["g3"]
    assert list(found(weight_versions=["v1"])) == ["g1", "g4"]
    assert list(found(weight_versions=["v1", "v2"])) == ["g1", "g3", "g4"]
    row = NewBatchRow(turn_id=turns["g1-1"], advantage=0.0, info={"skipped": "no variance"})
    recorder.record_batch(NewBatch(created_at=0.0, query={}, seed=0, weight_version="v1", rows=[row])).result()
    assert list(found()) == ["g3", "g4"]
    assert list(found(include_trained=True)) == ["g1", "g3", "g4"]


def test_a_lost_blob_is_named(make: Any, reader: Reader, store: Store) -> None:
    turn = reader.turn(make.turn(make.session(), make.end(reply=None)))
    with store.write() as connection:
        connection.execute(delete(Blob).where(Blob.sha256 != turn.skeleton))
    with pytest.raises(LookupError, match="lacks blob"):
        reader.messages(turn)


def test_tools_are_kept_once_and_come_back(make: Maker, reader: Reader) -> None:
    tools = [{"name": "bash", "description": "run", "parameters": {"type": "object"}}]
    session = make.session()
    ids = [make.turn(session, tools=tools), make.turn(session, tools=tools), make.turn(session)]
    assert [reader.tools(reader.turn(one)) for one in ids] == [tools, tools, []]
