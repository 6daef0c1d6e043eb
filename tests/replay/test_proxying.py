from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from replay import branching, proxying
from replay.proxying import Replaying
from replay.reader import Reader


def test_the_proxy_is_told_what_to_answer_from() -> None:
    replaying = Replaying(
        session="s", store="sqlite:///x.db", port=8123, until=2, then="live", model="m", sampling={"temperature": 0.5},
        edits=(("a", "b"),), ignore=("x+",),
    )  # fmt: skip
    program, *words = replaying.command()
    assert Path(program) == Path(sys.executable).with_name("tap")
    assert words[: words.index("--")] == ["up", "--port", "8123", "--store", "sqlite:///x.db", "--model", "m"]
    assert [word for word in words[words.index("--") + 1 :] if word != "--set"] == [
        "tap_replay=s", "tap_replay_until=2", "tap_replay_then=live", "tap_replay_cadence=fast",
        'tap_replay_sampling={"temperature":0.5}', 'tap_replay_ignore=["x+"]', 'tap_replay_edits=[["a","b"]]',
    ]  # fmt: skip


def test_a_proxy_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxying, "tap", lambda: [sys.executable, "-c", "print('no such model'); raise SystemExit(1)"])
    replaying = Replaying(session="s", store="sqlite:///x.db", port=proxying.free_port())
    with (
        pytest.raises(ValueError, match="the proxy did not start: no such model"),
        proxying.running(replaying, tmp_path / "log"),
    ):
        pass


def test_branches_are_numbered_on(make: Any, reader: Reader) -> None:
    make.turn(make.session("s"))
    session = reader.session("s")
    assert branching.branch_names(reader, session, 2, 2) == ("s.at2.1", "s.at2.2")
    for name in ("s.at2.9", "s.at2.x", "s.at20.30"):
        make.session(name)
    assert branching.branch_names(reader, session, 2, 1) == ("s.at2.10",)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "s"], "--model: the folder of the tokenizer"),
        (["serve", "ss"], "near: s"),
        (["serve", "empty", "--model", "m"], "has no turns to answer from"),
        (["fork", "s", "--at", "9", "--", "x"], "has 1 turn, no turn 9"),
        (["fork", "s", "--at", "1", "--edit", "ab", "--", "x"], "--edit 'ab' is not OLD=NEW"),
        (["fork", "s", "--at", "1", "--jobs", "2", "--", "x"], "give --workspace"),
    ],
)
def test_errors_say_what_to_do(
    replay: Any, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESSTAP_MODEL", raising=False)
    make.turn(make.session("s"))
    make.session("empty")
    assert says in replay(*arguments, code=1).stderr
