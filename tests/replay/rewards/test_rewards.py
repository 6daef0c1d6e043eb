"""Reward files over stored groups: what they see, what is stored, and that it can be done over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from replay.cli import app
from replay.reader import Reader
from replay.rewards import RewardError, Rollout, again, load, rollouts
from tests.replay.conftest import Maker


def group(make: Maker, rewards: list[float | None], calls: list[int]) -> None:
    """Sessions s0, s1, ... of one group; the i-th made calls[i] tool calls in one turn."""
    for index, (reward, count) in enumerate(zip(rewards, calls, strict=True)):
        session = make.session(f"s{index}", group="g")
        said = [{"id": f"c{n}", "name": "bash", "arguments": "{}"} for n in range(count)]
        make.turn(session, make.end(reply={"role": "assistant", "content": "", "tool_calls": said}))
        make.recorder.score(f"s{index}", reward, {"tests": 0.5}, "done").result()


def stored(reader: Reader) -> dict[str, tuple[float | None, dict[str, Any] | None]]:
    return {s.name: (s.reward, s.reward_parts) for s in reader.sessions()}


def test_terms_are_added_stored_apart_and_can_be_done_over(make: Maker, reader: Reader) -> None:
    group(make, [1.0, 1.0, 0.0, None], [2, 4, 1, 1])
    fewer = load("fewer_calls", {"alpha": 0.2})
    shown = again(reader, make.recorder, reader.groups(), [fewer])
    assert [(s.before, s.reward) for s in shown] == [(1.0, 1.2), (1.0, 1.0), (0.0, 0.0), (None, None)]
    assert stored(reader) == {
        "s0": (1.2, {"task": 1.0, "tests": 0.5, "+fewer_calls": 0.2}),
        "s1": (1.0, {"task": 1.0, "tests": 0.5, "+fewer_calls": 0.0}),
        "s2": (0.0, {"task": 0.0, "tests": 0.5, "+fewer_calls": 0.0}),
        "s3": (None, {"tests": 0.5}),
    }
    again(reader, make.recorder, reader.groups(), [load("fewer_calls", {"alpha": 0.1})])
    assert stored(reader)["s0"][0] == 1.1, "from the task's reward, not from the last one"
    again(reader, make.recorder, reader.groups(), [])
    assert stored(reader)["s0"] == (1.0, {"tests": 0.5})


def test_a_dry_run_and_a_faulty_file_change_nothing(make: Maker, reader: Reader, tmp_path: Path) -> None:
    group(make, [1.0, 0.0], [1, 2])
    before = stored(reader)
    again(reader, make.recorder, reader.groups(), [load("fewer_calls")], dry=True)
    assert stored(reader) == before
    faulty = {
        "raises": ("def reward(group): return [1 / 0]", "ZeroDivisionError"),
        "few": ("def reward(group): return [{}]", "2 mappings"),
        "nan": ("def reward(group): return [{'x': float('nan')} for r in group]", "finite number, got nan"),
        "number": ("def reward(group): return [0.5 for r in group]", "must be a mapping, got 0.5"),
        "task": ("def reward(group): return [{'task': 1} for r in group]", "'task' cannot name a term"),
    }
    for name, (source, complaint) in faulty.items():
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        with pytest.raises(RewardError, match=complaint):
            again(reader, make.recorder, reader.groups(), [load(str(path))])
    twice = [load("fewer_calls"), load("fewer_calls")]
    with pytest.raises(RewardError, match="'fewer_calls' already"):
        again(reader, make.recorder, reader.groups(), twice)
    assert stored(reader) == before


def test_what_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="no reward file 'fewer'; shipped: fewer_calls, format, length"):
        load("fewer")
    (tmp_path / "empty.py").write_text("x = 1")
    with pytest.raises(RewardError, match="defines no function"):
        load(str(tmp_path / "empty.py"))
    with pytest.raises(RewardError, match="takes no 'alpa'; it takes: alpha, least"):
        load("fewer_calls", {"alpa": 1})


def rollout(**known: Any) -> Rollout:
    counts = {"turns": 1, "tool_calls": 1, "sampled_tokens": 100, "truncated": 0, "malformed": 0}
    return Rollout(**{"session": "s", "harness": None, "task": 1.0, "parts": {}, "replies": (), **counts, **known})


def test_fewer_calls_pays_only_groups_that_solve_and_never_lifts_a_failure() -> None:
    file = load("fewer_calls")
    half = [rollout(tool_calls=3), rollout(tool_calls=9), rollout(task=0.0), rollout(task=0.0)]
    assert [t["fewer_calls"] for t in file(half)] == [0.1, 0.0, 0.0, 0.0]
    seldom = [rollout(tool_calls=3), rollout(task=0.0), rollout(task=0.0)]
    assert file(seldom) == [{}, {}, {}]
    assert file([rollout(task=None)]) == [{}]
    alike = [rollout(tool_calls=3), rollout(tool_calls=3)]
    assert [t["fewer_calls"] for t in file(alike)] == [0.0, 0.0]


def test_length_and_format_only_ever_cost() -> None:
    length = load("length", {"budget": 100, "weight": 0.2})
    found = length([rollout(sampled_tokens=n, truncated=t) for n, t in [(100, 0), (150, 0), (900, 0), (50, 2)]])
    assert [round(terms["length"], 3) for terms in found] == [0.0, -0.1, -0.2, -0.1]
    assert load("format")([rollout(turns=4, malformed=1), rollout()]) == [{"format": -0.025}, {"format": 0.0}]


def test_a_file_sees_finished_turns_of_agents_only(make: Maker, reader: Reader) -> None:
    session = make.session("s", group="g")
    make.turn(session, make.end(sampled=[1, 2, 3], finish="length"))
    make.turn(session, make.end(sampled=[1]), purpose="title")
    make.turn(session, make.end(sampled=[1], status="aborted"))
    [seen] = rollouts(reader, reader.sessions())
    assert (seen.turns, seen.sampled_tokens, seen.truncated, len(seen.replies)) == (1, 3, 1, 1)


def test_the_command(make: Maker, reader: Reader, tmp_path: Path) -> None:
    group(make, [1.0, 1.0], [1, 3])
    url = reader.store.engine.url.render_as_string(hide_password=False)
    runner = CliRunner()

    def run(*words: str) -> str:
        result = runner.invoke(app, ["score", *words, "--store", url])
        return f"{result.exit_code} {' '.join(result.output.split())}"

    assert "1.5" in run("--again", "fewer_calls:alpha=0.5", "--dry-run")
    assert stored(reader)["s0"][0] == 1.0
    assert run("--again", "fewer_calls:alpha=0.5", "--group", "g").startswith("0 ")
    assert stored(reader)["s0"][0] == 1.5
    assert run("--plain").startswith("0 ")
    assert stored(reader)["s0"][0] == 1.0
    assert "no complete group h" in run("--again", "length", "--group", "h")
    assert "is not SETTING=NUMBER" in run("--again", "length:budget")
    assert "name a session" in run()
