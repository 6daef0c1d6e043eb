"""Turns that a killed process left open, and those of one that lives."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from replay import owners
from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder

_OPENS_A_TURN = """
import sys, time
from replay.records import NewSession, NewTurn
from replay.store import Store
from replay.writer import Recorder
recorder = Recorder(Store.open(sys.argv[1]))
session_id = recorder.open_session(NewSession(name="killed")).result()
print(recorder.open_turn(NewTurn(
    session_id=session_id, purpose="main", dialect="chat", route="/", model="m", prompt_suffix=[1, 2],
    prompt_length=2, sampling_asked={}, sampling_sent={}, received_at=1.0, body_digest="0" * 64,
    request={"messages": []}, messages=[], drift_reason="first",
)).result(), flush=True)
time.sleep(600)
"""


def test_the_turns_of_a_killed_process_are_aborted_and_those_of_a_live_one_left(
    make: Any, recorder: Recorder, reader: Reader, store: Store
) -> None:
    live = recorder.open_turn(make.new_turn(make.session("live"))).result(30)
    url = store.engine.url.render_as_string(hide_password=False)
    process = subprocess.Popen(
        [sys.executable, "-c", _OPENS_A_TURN, url], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    lost = int(process.stdout.readline())
    assert recorder.sweep().result(30) == 0
    process.kill()
    process.wait()
    process.stdout.close()
    found = 0
    for _ in range(100):  # the PostgreSQL server may take a moment to see that the connection is gone
        if found := recorder.sweep().result(30):
            break
        time.sleep(0.1)
    assert found == 1
    turn = reader.turn(lost)
    assert (turn.status, turn.finish, turn.done_at, turn.n_sampled) == ("aborted", "abort", None, 0)
    assert turn.error is not None
    assert turn.error["kind"] == "lost"
    assert reader.turn(live).status == "open"
    assert recorder.sweep().result(30) == 0


def test_who_released_is_gone(store: Store) -> None:
    one, two = owners.take(store), owners.take(store)
    assert (owners.is_gone(store, one.name), owners.is_gone(store, two.name)) == (False, False)
    one.release()
    assert (owners.is_gone(store, one.name), owners.is_gone(store, two.name)) == (True, False)
    two.release()


def test_nothing_is_left_beside_the_database(make: Any, recorder: Recorder, store: Store) -> None:
    make.turn(make.session())
    recorder.close()
    if store.engine.dialect.name == "sqlite":
        folder = Path(str(store.engine.url.database)).parent
        assert [path.name for path in folder.iterdir() if "owner" in path.name] == []
