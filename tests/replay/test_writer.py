from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, func, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from replay.reader import Reader
from replay.records import NewBatch, NewBatchRow, NewSession
from replay.schema import Blob, Session, Turn
from replay.store import Store
from replay.writer import Recorder

DYING = """
import os, signal, sys, time
from replay.records import NewSession, NewTurn, TurnEnd
from replay.store import Store
from replay.writer import Recorder

recorder = Recorder(Store.open(sys.argv[1]))
session_id = recorder.open_session(NewSession(name="dying")).result()
turn_id = recorder.open_turn(NewTurn(
    session_id=session_id, purpose="main", dialect="chat", route="/", model="m", prompt_suffix=[1, 2],
    prompt_length=2, sampling_asked={}, sampling_sent={}, received_at=time.time(), body_digest="0" * 64,
    request={"messages": [{"role": "user", "content": "hi"}]}, messages=[], drift_reason="first",
)).result()
end = TurnEnd(status="complete", done_at=time.time(), sampled=[3, 4, 5], logprobs=[-1.0, -2.0, -0.5], finish="stop")
recorder.finish_turn(turn_id, end).result()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_resolved_future_survives_kill_9(url: str) -> None:
    process = subprocess.run([sys.executable, "-c", DYING, url], check=False)
    assert process.returncode == -signal.SIGKILL
    with Store.open(url, create=False) as store:
        reader = Reader(store)
        [turn] = reader.turns(reader.session("dying"))
        assert turn.status == "complete"
        assert reader.prompt_ids(turn) == [1, 2]
        assert reader.sampled(turn) == ([3, 4, 5], [-1.0, -2.0, -0.5])
        assert reader.request(turn) == {"messages": [{"role": "user", "content": "hi"}]}


def test_a_future_resolves_only_once_others_can_read_its_row(url: str, recorder: Recorder, make: Any) -> None:
    other = create_engine(url)
    seen: list[str] = []

    def look(_: Future[Any]) -> None:
        with other.connect() as connection:
            seen.append(connection.execute(select(Turn.status)).scalar_one())

    session_id = make.session()
    opened = recorder.open_turn(make.new_turn(session_id))
    opened.add_done_callback(look)
    finished = recorder.finish_turn(opened.result(), make.end())
    finished.add_done_callback(look)
    finished.result()
    recorder.close()
    assert seen == ["open", "complete"]
    other.dispose()


def test_storage_grows_with_what_is_new(recorder: Recorder, make: Any, store: Store) -> None:
    def stored() -> tuple[int, int]:
        with store.engine.connect() as connection:
            blobs = connection.execute(select(func.sum(Blob.size), func.sum(func.length(Blob.data)))).one()
            columns = [Turn.prompt_suffix, Turn.sampled, Turn.logprobs, Turn.request_items, Turn.messages]
            rows = connection.execute(text("SELECT " + ", ".join(
                f"SUM(LENGTH(CAST({c.key} AS TEXT)))" for c in columns
            ) + " FROM turn")).one()  # fmt: skip
        return int(blobs[0]), sum(int(x) for x in rows)

    make.conversation(make.session("short"), 1)
    first = stored()
    make.conversation(make.session("long"), 20)
    twenty = stored()
    make.conversation(make.session("longer"), 40)
    forty = stored()
    # 20 more messages cost 20 messages, of some 230 bytes, though each was sent up to 40 times.
    assert 0 < forty[0] - twenty[0] < 20 * 300
    assert twenty[0] - first[0] < 19 * 300
    # Ids, logprobs and references of 40 turns weigh twice those of 20.
    assert forty[1] - twenty[1] < 2.1 * (twenty[1] - first[1])


def test_the_same_body_again_costs_no_blob(make: Any, store: Store) -> None:
    def count() -> int:
        with store.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(Blob)).scalar_one()

    session_id = make.session()
    make.turn(session_id)
    before = count()
    make.turn(session_id, drift_reason="harness_rewrote")
    assert count() == before
    with Recorder(store) as another:  # one that does not know which blobs exist
        another.open_turn(make.new_turn(session_id, drift_reason="harness_rewrote")).result()
    assert count() == before


def test_many_agents_share_commits(recorder: Recorder, make: Any, store: Store) -> None:
    """While one commit is held back, 63 threads queue up; they then need one or two more."""
    session_id = make.session()
    before = recorder.commits
    held, release = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        held.set()
        assert release.wait(30)

    event.listen(store.engine, "commit", hold, once=True)
    with ThreadPoolExecutor(64) as agents:
        first = agents.submit(lambda: recorder.open_turn(make.new_turn(session_id)).result(30))
        assert held.wait(30)
        barrier = threading.Barrier(64)

        def submit() -> int:
            future = recorder.open_turn(make.new_turn(session_id))
            barrier.wait(30)
            return future.result(30)

        others = [agents.submit(submit) for _ in range(63)]
        barrier.wait(30)
        release.set()
        ids = {first.result(), *(other.result() for other in others)}
    assert len(ids) == 64
    assert recorder.commits - before == 2


def test_a_failing_operation_fails_alone(recorder: Recorder, make: Any, reader: Reader, store: Store) -> None:
    session_id = make.session()
    stop = threading.Event()
    event.listen(store.engine, "commit", lambda _: stop.wait(30), once=True)
    blocker = recorder.open_turn(make.new_turn(session_id))
    futures = [
        recorder.open_turn(make.new_turn(session_id)),
        recorder.open_turn(make.new_turn(999)),  # no such session: refused by us
        recorder.open_turn(make.new_turn(session_id, retry_of=999)),  # refused by the database
        recorder.open_turn(make.new_turn(session_id, request={"messages": [object()]})),  # cannot be encoded
        recorder.open_turn(make.new_turn(session_id)),
    ]
    stop.set()
    blocker.result()
    outcomes = [future.exception() for future in futures]
    assert [type(outcome) for outcome in outcomes] == [type(None), ValueError, IntegrityError, TypeError, type(None)]
    stored = {turn.id for turn in reader.turns(reader.session("s"))}
    assert stored == {blocker.result(), futures[0].result(), futures[4].result()}


def test_a_failing_commit_fails_its_group_and_the_thread_lives_on(recorder: Recorder, make: Any, store: Store) -> None:
    session_id = make.session()

    def fail(_: Any) -> None:
        raise OSError("disk full")

    event.listen(store.engine, "commit", fail, once=True)
    with pytest.raises(OSError, match="disk full"):
        recorder.open_turn(make.new_turn(session_id)).result()
    # The blobs of the failed group must not be taken for stored.
    assert recorder.open_turn(make.new_turn(session_id)).result() > 0


def test_a_harness_that_hangs_up_does_not_undo_the_record(
    recorder: Recorder, make: Any, reader: Reader, store: Store
) -> None:
    session_id = make.session()
    turn_id = recorder.open_turn(make.new_turn(session_id)).result()
    cancelled = threading.Event()
    event.listen(store.engine, "commit", lambda _: cancelled.wait(30), once=True)

    async def call() -> None:
        task = asyncio.ensure_future(asyncio.wrap_future(recorder.finish_turn(turn_id, make.end())))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(call())
    cancelled.set()
    recorder.mark_delivered(turn_id, 1.0).result(30)  # the recorder lives
    assert reader.turn(turn_id).status == "complete"


def test_close_writes_what_was_submitted(store: Store, make: Any, reader: Reader) -> None:
    session_id = make.session()
    with Recorder(store) as recorder:
        futures = [recorder.open_turn(make.new_turn(session_id)) for _ in range(50)]
    assert all(future.done() for future in futures)
    assert len(reader.turns(reader.session("s"))) == 50
    with pytest.raises(RuntimeError, match="closed"):
        recorder.open_session(NewSession(name="late"))
    recorder.close()


def test_opening_a_session_again_fills_only_what_is_unknown(make: Any, reader: Reader) -> None:
    first = make.session("a", harness="codex", metadata={"k": 1})
    second = make.session("a", harness="pi", harness_version="2", task="t", group="g", metadata={"k": 2, "new": [3]})
    assert first == second
    found = reader.session("a")
    assert (found.harness, found.harness_version, found.task, found.group) == ("codex", "2", "t", "g")
    assert found.meta == {"k": 1, "new": [3]}
    assert (found.status, found.reward) == ("open", None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"prompt_suffix": [9], "prompt_length": 5}, r"prompt_length 5 is not 5 .* \+ 1 \(suffix\)"),
        ({"prompt_suffix": [9], "prompt_length": 6, "parent_id": 404}, "turn 404 is not one of session"),
    ],
)
def test_a_prompt_must_continue_its_parent(make: Any, recorder: Recorder, changes: dict[str, Any], says: str) -> None:
    session_id = make.session()
    parent = make.turn(session_id)
    with pytest.raises(ValueError, match=says):
        recorder.open_turn(make.new_turn(session_id, **{"parent_id": parent, **changes})).result()
    make.turn(session_id, parent_id=parent, prompt_suffix=[9], prompt_length=6)


def test_a_parent_is_of_the_same_session_and_finished(make: Any, recorder: Recorder) -> None:
    mine, other = make.session("mine"), make.session("other")
    foreign = make.turn(other)
    with pytest.raises(ValueError, match="is not one of session"):
        recorder.open_turn(make.new_turn(mine, parent_id=foreign, prompt_length=8)).result()
    unfinished = recorder.open_turn(make.new_turn(mine)).result()
    with pytest.raises(ValueError, match="still open"):
        recorder.open_turn(make.new_turn(mine, parent_id=unfinished, prompt_length=6)).result()


def test_a_turn_ends_once(make: Any, recorder: Recorder) -> None:
    turn_id = make.turn(make.session(), make.end(status="aborted", finish=None))
    with pytest.raises(ValueError, match=f"turn {turn_id} is already aborted"):
        recorder.finish_turn(turn_id, make.end()).result()
    with pytest.raises(ValueError, match="no turn 404"):
        recorder.finish_turn(404, make.end()).result()
    with pytest.raises(ValueError, match="no turn 404"):
        recorder.mark_delivered(404, 1.0).result()


def test_logprobs_are_complete_or_the_turn_says_why(make: Any, reader: Reader) -> None:
    with pytest.raises(ValueError, match="2 sampled ids, 1 logprobs"):
        make.end([7, 8], logprobs=[-1.0])
    with pytest.raises(ValueError, match="NaN"):
        make.end([7], logprobs=[float("nan")])
    turn = reader.turn(make.turn(make.session(), make.end([7, 8], logprobs=[], untrainable="missing logprobs")))
    assert reader.sampled(turn) == ([7, 8], [])
    assert turn.untrainable == "missing logprobs"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"purpose": "fun"}, "purpose 'fun' is none of main"),
        ({"drift_reason": "mood"}, "drift_reason 'mood'"),
        ({"drift_reason": None}, "root turn needs a drift_reason"),
        ({"parent_id": 1, "drift_reason": "first"}, "continues turn 1, yet"),
        ({"body_digest": "abc"}, "sha256"),
    ],
)
def test_values_that_are_none(make: Any, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make.new_turn(1, **changes)


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
def test_names_that_cannot_be_kept(name: str) -> None:
    with pytest.raises(ValueError, match="session"):
        NewSession(name=name)


def test_scores(make: Any, recorder: Recorder, reader: Reader) -> None:
    make.session("a")
    recorder.score("a", 0.0, {"tests": 1.0, "length": -1.0}, "done").result()
    found = reader.session("a")
    assert (found.reward, found.reward_parts, found.status) == (0.0, {"tests": 1.0, "length": -1.0}, "done")
    assert found.scored_at is not None
    recorder.score("a", None, None, None).result()
    found = reader.session("a")
    assert (found.reward, found.reward_parts, found.status) == (None, None, "done")
    with pytest.raises(LookupError, match="no session 'b'"):
        recorder.score("b", 1.0).result()
    for wrong in (lambda: recorder.score("a", float("nan")), lambda: recorder.score("a", 1.0, {"x": float("inf")})):
        with pytest.raises(ValueError, match="must be finite"):
            wrong()


def test_what_a_text_column_cannot_hold_does_not_lose_the_turn(make: Any, reader: Reader) -> None:
    request = {"model": "m\ud800\0", "messages": [{"content": "\ud83d \0"}], "stop": ["\udfff"], "n": 10**40}
    turn_id = make.turn(
        make.session(harness="h\0"),
        make.end(stop_sequence="\udfff", error={"message": "bad \ud800\0"}, reply={"content": "\0\ud800"}),
        model="m\ud800\0",
        request=request,
        messages=[{"role": "user", "content": "\ud83d \0"}],
        sampling_asked={"stop": ["\udfff", "\0"], "n": 10**40},
        ignored_fields=["x\ud800"],
    )
    turn = reader.turn(turn_id)
    assert turn.model == "m\ufffd\ufffd"
    assert turn.stop_sequence == "\ufffd"
    assert turn.error == {"message": "bad \ud800\0"}
    assert turn.sampling_asked == {"stop": ["\udfff", "\0"], "n": 10**40}
    assert turn.ignored_fields == ["x\ud800"]
    assert reader.request(turn) == request
    assert reader.messages(turn) == [{"role": "user", "content": "\ud83d \0"}]
    assert reader.reply(turn) == {"content": "\0\ud800"}


def test_no_credential_is_anywhere_in_the_database(tmp_path: Path, make_with: Any) -> None:
    path = tmp_path / "record.db"
    with Store.open(f"sqlite:///{path}") as store, Recorder(store) as recorder:
        metadata = {"env": {"OPENAI_API_KEY": "SECRET-1"}, "proxy": "http://u:SECRET-2@h"}
        session_id = recorder.open_session(NewSession(name="s", metadata=metadata)).result()
        from_body = {"api_key": "SECRET-3", "extra_headers": {"Authorization": "Bearer SECRET-4"}, "messages": []}
        make = make_with(recorder)
        turn_id = recorder.open_turn(
            make.new_turn(
                session_id, route="/v1beta/models/g:generateContent?key=SECRET-5&alt=sse", request=from_body,
                sampling_asked={"extra": {"x-api-key": "SECRET-6"}}, sampling_sent={"api_key": "SECRET-7"},
            )
        ).result()  # fmt: skip
        error = {"message": "GET https://h/v1?key=SECRET-8", "headers": {"cookie": "SECRET-9"}}
        recorder.finish_turn(turn_id, make.end((), status="failed", error=error)).result()
        everything = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        with store.engine.connect() as connection:
            blobs = [Reader(store)._blobs([digest])[0] for digest in connection.scalars(select(Blob.sha256))]
    assert b"alt=sse" in everything
    assert b"SECRET" not in everything
    assert "SECRET" not in repr(blobs)


READING = """
import sys
from sqlalchemy import func, select
from replay.schema import Session
from replay.store import Store
store = Store.open(sys.argv[1], create=False)
for _ in range(2):
    with store.engine.connect() as connection:
        for _ in range(2):
            sys.stdin.readline()
            print(connection.execute(select(func.count()).select_from(Session)).scalar_one(), flush=True)
"""


def test_another_process_reads_while_this_one_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/record.db"
    with (
        Store.open(url) as store,
        subprocess.Popen(
            [sys.executable, "-c", READING, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        asks, answers = process.stdin, process.stdout
        assert asks is not None
        assert answers is not None

        def ask() -> int:
            print("?", file=asks, flush=True)
            return int(answers.readline())

        assert ask() == 0
        with store.write() as connection:  # neither waits for the other
            connection.execute(insert(Session).values(name="a", status="open", created_at=0.0))
        assert ask() == 0  # its transaction goes on seeing what it saw
        assert ask() == 1
        assert ask() == 1
    assert process.returncode == 0


def test_a_foreign_writer_is_waited_for(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/record.db") as store, Recorder(store) as recorder:
        foreign = sqlite3.connect(tmp_path / "record.db", isolation_level=None)
        foreign.execute("BEGIN IMMEDIATE")
        future = recorder.open_session(NewSession(name="a"))
        with pytest.raises(TimeoutError):
            future.result(0.3)
        foreign.execute("COMMIT")
        foreign.close()
        assert future.result() == 1


def test_batches(make: Any, recorder: Recorder, store: Store) -> None:
    turns = [make.turn(make.session(name)) for name in "ab"]
    batch = NewBatch(
        created_at=5.0,
        query={"task": "t"},
        seed=7,
        weight_version="v1",
        checkpoint=None,
        stats={"loss": 0.5},
        rows=[
            NewBatchRow(turn_id=turns[1], advantage=0.7, info={"trained": 2}),
            NewBatchRow(turn_id=turns[0], advantage=-0.7),
        ],
    )
    batch_id = recorder.record_batch(batch).result()
    with store.engine.connect() as connection:
        rows = connection.execute(
            text("SELECT batch_id, position, turn_id, advantage FROM batch_row ORDER BY position")
        )
        assert [tuple(row) for row in rows] == [(batch_id, 0, turns[1], 0.7), (batch_id, 1, turns[0], -0.7)]
    with pytest.raises(IntegrityError):
        recorder.record_batch(
            NewBatch(
                created_at=5.0, query={}, seed=0, weight_version="v1", rows=[NewBatchRow(turn_id=404, advantage=0)]
            )
        ).result()
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM batch")).scalar_one() == 1


def test_errors_of_the_database_do_not_repeat_what_was_said(make: Any, recorder: Recorder) -> None:
    future = recorder.open_turn(make.new_turn(make.session(), retry_of=404, model="whispered"))
    with pytest.raises(DBAPIError) as caught:
        future.result()
    assert "whispered" not in str(caught.value)
