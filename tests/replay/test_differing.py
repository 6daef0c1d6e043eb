from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.fixture
def two(make: Any) -> None:
    """`a`, its replay `same`, and a run `b` that goes another way in its second call."""
    turns = make.conversation(make.session("a", harness="codex", harness_version="1"), 2)
    same = make.session("same")
    replies = [make.end(), make.end()]
    parent = None
    for turn, ending in zip(turns, replies, strict=True):
        new = [{"role": "user", "content": f"message {turns.index(turn)} " + "x" * 200}]
        suffix = [10 * turns.index(turn) + offset for offset in range(10)]
        parent = make.turn(same, ending, parent_id=parent, prompt_suffix=suffix, messages=new, replays=turn,
                           prompt_length=len(suffix) * (turns.index(turn) + 1) + 2 * turns.index(turn))  # fmt: skip
    b = make.session("b", harness="codex", harness_version="2")
    first = make.turn(
        b, prompt_suffix=list(range(10)), messages=[{"role": "user", "content": "message 0 " + "x" * 200}]
    )
    make.turn(b, make.end([7, 9], logprobs=[-0.25, -0.5]), parent_id=first, prompt_suffix=[10, 11, 99],
              prompt_length=15, messages=[{"role": "user", "content": "message 1 " + "x" * 199 + "y"}],
              tools=[{"name": "edit"}])  # fmt: skip
    make.turn(b, make.end([5]), purpose="title", drift_reason="subagent")


@pytest.mark.usefixtures("two")
def test_a_replay_without_differences(replay: Any) -> None:
    output = replay("diff", "a", "same").output
    assert "no differences in 2 calls" in output
    assert json.loads(replay("diff", "a", "same", "--json").output)["differences"] == 0
    replay("diff", "a", "a")


@pytest.mark.usefixtures("two")
def test_the_first_difference_is_named(replay: Any) -> None:
    output = replay("diff", "a", "b", code=2).output
    assert "codex 1" in output
    assert "codex 2" in output
    lines = output.splitlines()
    told = lines[lines.index("first difference, A #2 and B #2:") + 1 :]
    assert told[0].startswith("  message 3 (user), content, byte 209: stored '…xxx")
    assert told[-4:] == [
        "  tools added edit",
        "  prompt ids from token 14 on",
        "  sampled ids from token 1 on",
        "  logprobs by up to 0.25",
    ]
    first, second, third = json.loads(replay("diff", "a", "b", "--json", code=2).output)["calls"]
    assert not first["differs"]
    assert (second["prompt"], second["sampled"], second["logprobs"], second["tools"]) == (14, 1, 0.25, "added edit")
    assert (third["purpose"], third["one"], third["other"]) == ("title", None, 3)
    assert "near" in replay("diff", "a", "bb", code=1).stderr


@pytest.mark.usefixtures("two")
def test_a_session_of_another_record(replay: Any, url: str) -> None:
    assert replay("diff", "a", "same", "--other-store", url).exit_code == 0
    assert "no database" in replay("diff", "a", "a", "--other-store", "sqlite:////none/x.db", code=1).stderr
