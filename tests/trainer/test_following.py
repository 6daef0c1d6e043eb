"""Training while another process records: what is waited for, what is told, and every way to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from replay.batches import StoredBatch, load_batch
from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.conftest import make_checkpoint
from tests.trainer.recording import record_session, record_turn
from trainer.following import Following, Sight, WaitingLine, stoppable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        yield store


def add_group(recorder: Recorder, name: str, rewards: list[float], version: str = "0") -> None:
    for index, reward in enumerate(rewards):
        session = record_session(recorder, f"{name}.{index}", group=name, reward=reward)
        record_turn(recorder, session, [5, 6, 7 + index], [8, 9, 2], [-5.5] * 3, version=version)


def test_a_sight_tells_contrast_flat_stale_and_running(store: Store) -> None:
    with Recorder(store) as recorder:
        add_group(recorder, "good", [1, 0], "3")
        add_group(recorder, "flat", [1, 1], "3")
        add_group(recorder, "old", [1, 0], "1")
        add_group(recorder, "single", [1], "3")
        record_session(recorder, "half.0", group="half", reward=1.0)
        record_session(recorder, "half.1", group="half", open=True)
        record_session(recorder, "alone", open=True)
        sight = Sight.of(store, min_size=2, fresh=["2", "3"])
    assert [[g.name for g in groups] for groups in (sight.contrast, sight.flat, sight.stale)] == [
        ["good"],
        ["flat"],
        ["old"],
    ]
    assert sight.says(4) == "1 of 4 groups with contrast, 1 without, 1 too old, 1 sessions running"
    assert {g.name for g in Sight.of(store, min_size=2, fresh=None).contrast} == {"good", "old"}


def test_waiting_ends_with_the_group_that_was_missing(store: Store) -> None:
    heard: list[str] = []
    with Recorder(store) as recorder:
        add_group(recorder, "a", [1, 0])
        following = Following(store, wanted=2, poll=0.02, idle=20, waiting=lambda text, _: heard.append(text))
        later = threading.Timer(0.3, add_group, (recorder, "b", [1, 0]))
        later.start()
        assert following.wait(None) is None
        later.join()
    assert heard[0] == "1 of 2 groups with contrast, 0 sessions running"
    assert following.summary() is None


def test_idle_counts_from_the_last_group(store: Store) -> None:
    with Recorder(store) as recorder:
        following = Following(store, wanted=9, poll=0.02, idle=0.6)
        adding = [threading.Timer(delay, add_group, (recorder, f"g{delay}", [0, 1])) for delay in (0.4, 0.8)]
        for timer in adding:
            timer.start()
        began = time.monotonic()
        reason = following.wait(None)
        assert time.monotonic() - began > 1.3
        for timer in adding:
            timer.join()
    assert reason == "no group was completed for 0.6 s (2 of 9 groups with contrast, 0 sessions running)"


def test_what_is_too_old_is_told_once_and_counted(store: Store) -> None:
    said: list[str] = []
    with Recorder(store) as recorder:
        add_group(recorder, "old", [1, 0, 0], "1")
        following = Following(store, poll=0.01, idle=0.05, say=said.append)
        assert following.wait(["4"]) is not None
        add_group(recorder, "older", [1, 1], "default")
        assert following.wait(["4"]) is not None
        add_group(recorder, "new", [1, 0], "4")
        assert following.wait(["4"]) is None
    assert said == [
        "1 groups with 3 sessions are too old to be trained on: old",
        "1 groups with 2 sessions are too old to be trained on: older",
    ]
    assert following.summary() == "too old to be trained on: 2 groups with 5 sessions"


def test_a_signal_ends_the_waiting_and_a_second_one_interrupts(store: Store) -> None:
    before = signal.getsignal(signal.SIGTERM)
    said: list[str] = []
    with stoppable(said.append) as stop:
        following = Following(store, stop=stop, poll=30)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        began = time.monotonic()
        assert following.wait(None) == "asked to stop"
        assert time.monotonic() - began < 10
        os.kill(os.getpid(), signal.SIGTERM)  # asked again in the same way: nothing changes
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
    assert said[0] == "stopping after the step in hand"


def test_where_nobody_sees_a_line_change_only_changes_are_printed() -> None:
    out = StringIO()
    with WaitingLine(Console(file=out, width=200)) as line:
        for seconds in range(3):
            line("1 of 2 groups", seconds)
        line("2 of 3 groups", 3)
    assert out.getvalue() == "waiting: 1 of 2 groups\nwaiting: 2 of 3 groups\n"
    terminal = StringIO()
    with WaitingLine(Console(file=terminal, width=200, force_terminal=True)) as line:
        line("1 of 2 groups", 7)
    assert "waiting 7 s: 1 of 2 groups" in terminal.getvalue()


def until(condition: Callable[[], bool], process: subprocess.Popen[str], log: Path, seconds: float = 90) -> None:
    """Wait for `condition`; fails when the trainer has ended or time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


@pytest.mark.slow
def test_the_trainer_goes_on_as_groups_come_in(tmp_path: Path, store: Store) -> None:
    """This process records, another one trains: two steps, one group too old, and an end on SIGTERM."""
    model = make_checkpoint(tmp_path / "model", layers=1)
    log = tmp_path / "log"
    command = [
        *(sys.executable, "-m", "trainer.cli", "grpo", "--model", str(model), "--store", str(store.engine.url)),
        *("--out", str(tmp_path / "out"), "--no-push", "--follow", "--groups", "2", "--max-lag", "0", "--lr", "1e-3"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    def batches() -> list[StoredBatch]:
        names = sorted((tmp_path / "out" / "weights").glob("[0-9]*"))
        found = []
        for number in range(1, len(names) + 1):
            try:
                found.append(load_batch(store, number))
            except LookupError:
                break
        return found

    with (
        log.open("w") as file,
        Recorder(store) as recorder,
        subprocess.Popen(command, stdout=file, stderr=file, text=True, env=environment, cwd=tmp_path) as process,
    ):
        try:
            until(lambda: "waiting: 0 of 2 groups with contrast, 0 sessions running" in log.read_text(), process, log)
            add_group(recorder, "a", [1, 0])
            add_group(recorder, "flat", [1, 1])
            until(lambda: "waiting: 1 of 2 groups with contrast, 1 without" in log.read_text(), process, log)
            add_group(recorder, "b", [0, 1])
            until(lambda: len(batches()) == 1, process, log)
            add_group(recorder, "old", [1, 0], "0")
            until(lambda: "1 groups with 2 sessions are too old to be trained on: old" in log.read_text(), process, log)
            for name in "cd":
                add_group(recorder, name, [1, 0], "1")
            until(lambda: len(batches()) == 2, process, log)
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        finally:
            process.kill()
    text = log.read_text()
    assert process.returncode == 0, text
    assert "stopping after the step in hand" in text
    assert "ended after 2 steps: asked to stop" in text
    assert "too old to be trained on: 1 groups with 2 sessions" in text
    assert [entry.batch.query["groups"] for entry in batches()] == [["a", "flat", "b"], ["c", "d"]]
    assert batches()[1].batch.stats["groups_stale"] == 1
    assert [group.name for group in Reader(store).groups()] == ["old"]
