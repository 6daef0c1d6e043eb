"""Which sessions are imitated, and on which tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.recording import record_session, record_turn
from trainer.imitation import Demonstrations, demonstrations, exact_examples


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        yield store


def names(reader: Reader, **choice: object) -> list[str]:
    return [s.name for s in demonstrations(reader, Demonstrations(**choice))]  # type: ignore[arg-type]


def test_only_what_was_solved_is_imitated_and_the_first_of_each_task(store: Store) -> None:
    with Recorder(store) as recorder:
        for name, reward in [("a.0", 0.0), ("a.1", 1.0), ("a.2", 0.5), ("b.0", None), ("b.1", -1.0), ("b.2", 1.0)]:
            record_session(recorder, name, group=name[0], reward=reward)
        record_session(recorder, "a.3", group="a", reward=1.0, open=True)
    reader = Reader(store)
    assert names(reader) == ["a.1", "a.2", "b.2"]
    assert names(reader, above=0.5) == ["a.1", "b.2"]
    assert names(reader, per_task=1) == ["a.1", "b.2"]
    assert names(reader, prefix="b.") == ["b.2"]
    assert names(reader, harnesses=("other",)) == []


def test_an_example_is_the_conversation_with_the_loss_on_what_was_sampled(store: Store) -> None:
    with Recorder(store) as recorder:
        session = record_session(recorder, "s", group="g", reward=1.0)
        first = record_turn(recorder, session, [1, 2, 3], [4, 5], sampling={"temperature": 0.0, "top_p": 0.5})
        record_turn(recorder, session, [6], [7], parent=first)
        record_turn(recorder, session, [1, 2], [9], purpose="title")
    reader = Reader(store)
    found = exact_examples(reader, reader.sessions(), Demonstrations())
    [example] = found.examples
    assert example.ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert np.flatnonzero(example.mask).tolist() == [3, 4, 6], "also what was sampled greedily"
    assert example.columns()["labels"] == [-100, -100, -100, 4, 5, -100, 7]
    assert found.tokens == 3
    assert found.left_out == {"purpose title": 1}
