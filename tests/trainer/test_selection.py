"""Against a real store: what is selected, what is recorded as a batch, and that nothing is trained twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay.reader import Reader
from replay.store import Store
from replay.versions import VersionSpan
from replay.writer import Recorder
from tests.trainer.recording import record_session, record_turn
from trainer.selection import Choice, Lag, batch_record, explain_nothing, select, turn_tokens, up_to
from trainer.sequences import rows_of


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('store') / 'tap.db'}") as store:
        yield store


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        yield store


def a_group(recorder: Recorder, name: str, rewards: list[float | None]) -> None:
    for index, reward in enumerate(rewards):
        session = record_session(recorder, f"{name}:{index}", group=name, reward=reward)
        first = record_turn(recorder, session, [1, 2, 3], [4, 5], [-0.5, -0.25], version="0")
        record_turn(recorder, session, [6], [7, 8, 9], parent=first, version="1")


def test_rows_carry_their_sessions_advantage(fresh: Store) -> None:
    with Recorder(fresh) as recorder:
        a_group(recorder, "a", [1.0, 0.0])
        a_group(recorder, "flat", [0.0, 0.0])
        a_group(recorder, "unscored", [None, 1.0, 0.0])
    reader = Reader(fresh)
    chosen = select(reader, reader.groups(), Choice(scale="none"))
    assert [item.advantage for item in chosen.rows] == [0.5, -0.5, 0.5, -0.5]
    first = chosen.rows[0].row
    assert first.ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert first.mask.tolist() == [False] * 3 + [True] * 2 + [False] + [True] * 3
    assert first.logprobs.tolist() == [0, 0, 0, -0.5, -0.25, 0, -1, -1, -1]
    assert chosen.weight_versions == {"1": 12, "0": 8}
    assert sorted(chosen.skipped.values()) == ["no contrast in its group"] * 2 + ["no reward"]


def test_a_recorded_batch_is_consumed_and_can_be_built_again(fresh: Store) -> None:
    with Recorder(fresh) as recorder:
        a_group(recorder, "a", [1.0, 0.0])
        a_group(recorder, "flat", [0.0, 0.0])
        reader = Reader(fresh)
        groups = reader.groups()
        choice = Choice()
        chosen = select(reader, groups, choice)
        record = batch_record(
            reader, chosen, choice=choice, query={}, seed=0, weight_version="0", checkpoint=None, stats={}
        )
        recorder.record_batch(record).result()
        assert reader.groups() == []
        a_group(recorder, "b", [1.0, 0.0])
        assert [group.name for group in reader.groups()] == ["b"]
    names = record.query["groups"]
    again = select(reader, [g for g in reader.groups(include_trained=True) if g.name in names], choice)
    trained = [(row.turn_id, row.advantage) for row in record.rows if "trained" in (row.info or {})]
    assert [(item.row.turns[-1], item.advantage) for item in again.rows] == trained
    assert sum("skipped" in (row.info or {}) for row in record.rows) == 2


def test_how_old_the_weights_were_that_sampled_the_trained_tokens(fresh: Store) -> None:
    with Recorder(fresh) as recorder:
        for index, reward in enumerate((1.0, 0.0)):
            session = record_session(recorder, f"a:{index}", group="a", reward=reward)
            pushed = (VersionSpan("2", 0, 1), VersionSpan("4", 1, 4))
            first = record_turn(recorder, session, [1], [2, 3, 4, 5], versions=pushed)
            second = record_turn(recorder, session, [6], [7, 8], parent=first, version="default")
            record_turn(recorder, session, [6], [7], parent=second, version="by hand")
        record_turn(recorder, session, [1], [2, 3], version="3", version_end="4")
    reader = Reader(fresh)
    chosen = select(reader, reader.groups(), Choice())
    assert chosen.weight_versions == {"4": 6, "default": 4, "2": 2, "by hand": 2, "unknown": 2}
    # Version 5 trains: of 12 tokens 6 are one version behind, 2 three, and 4 five.
    assert chosen.lag(5) == Lag(mean=(6 * 1 + 2 * 3 + 4 * 5) / 12, max=5, unknown=4)
    record = batch_record(
        reader, chosen, choice=Choice(), query={}, seed=0, weight_version="5", checkpoint=None, stats={}
    )
    assert [len((row.info or {})["turns"]) for row in record.rows] == [3, 3, 1]  # a turn once, whatever its versions
    nothing = select(reader, [], Choice())
    assert nothing.lag(5) == Lag(mean=None, max=None, unknown=0)


def test_a_turn_is_as_old_as_its_first_token(fresh: Store) -> None:
    """However long ago the call was made, and however new the weights are that ended it."""
    with Recorder(fresh) as recorder:
        for name, pushed in {
            "waited": (VersionSpan("4", 0, 2),),
            "across": (VersionSpan("4", 0, 1), VersionSpan("5", 1, 2)),
            "older": (VersionSpan("3", 0, 1), VersionSpan("5", 1, 2)),
        }.items():
            session = record_session(recorder, name, group=name, reward=1.0)
            record_turn(recorder, session, [1], [2, 3], version="3", versions=pushed)
    assert [group.name for group in Reader(fresh).groups(weight_versions=["4", "5"])] == ["waited", "across"]


def test_explanations(fresh: Store) -> None:
    reader = Reader(fresh)

    def told() -> str:
        return explain_nothing(reader, select(reader, reader.groups(min_size=2), Choice()), 2)

    assert "no sessions yet" in told()
    with Recorder(fresh) as recorder:
        record_session(recorder, "lonely", open=True)
        record_session(recorder, "open:0", group="open", open=True)
        assert "2 sessions, 1 without a group; 1 groups, of which 1 have open sessions" in told()
        a_group(recorder, "flat", [1.0, 1.0, None])
        assert "flat: 3 done, rewards 1 1 none" in told()
        assert "no group has contrast" in told()
        for index in range(2):
            session = record_session(recorder, f"cut:{index}", group="cut", reward=float(index))
            record_turn(recorder, session, [1], [2, 3], sampling={"top_p": 0.9})
        assert "sampled with top_p: 4" in told()


def test_flat_groups_do_not_count_and_do_not_block(fresh: Store) -> None:
    with Recorder(fresh) as recorder:
        for name, rewards in {"flat": [0.0, 0.0], "a": [0.0, 1.0], "flat2": [None, 1.0], "b": [0.0, 1.0]}.items():
            a_group(recorder, name, rewards)
    groups = Reader(fresh).groups()
    assert [g.name for g in up_to(groups, 1)] == ["flat", "a"]
    assert [g.name for g in up_to(groups, 2)] == ["flat", "a", "flat2", "b"]
    assert up_to(groups, None) == groups


@given(st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_the_readers_ids(store: Store, data: st.DataObject) -> None:
    """For any tree of turns, a row is the prompt and reply of its last turn as the record tells them."""
    with Recorder(store) as recorder:
        name = f"s{len(Reader(store).sessions())}"
        session = record_session(recorder, name)
        written: list[tuple[int, int]] = []
        for index in range(data.draw(st.integers(1, 6))):
            parent = data.draw(st.none() | st.sampled_from(written)) if written else None
            sampled = [1000 * index + k for k in range(data.draw(st.integers(0, 3)))]
            suffix = [1000 * index + 500 + k for k in range(data.draw(st.integers(1, 3)))]
            status = data.draw(st.sampled_from(["complete", "aborted"]))
            written.append(record_turn(recorder, session, suffix, sampled, parent=parent, status=status))
    reader = Reader(store)
    stored = reader.session(name)
    turns = {turn.id: turn for turn in reader.turns(stored)}
    trained: list[int] = []
    for row in rows_of(turn_tokens(reader, stored)).rows:
        last = turns[row.turns[-1]]
        assert row.ids.tolist() == reader.prompt_ids(last) + reader.sampled(last)[0]
        trained += row.ids[row.mask].tolist()
    wanted = [i for turn in turns.values() if turn.status == "complete" for i in reader.sampled(turn)[0]]
    assert sorted(trained) == sorted(wanted)
