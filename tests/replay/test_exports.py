from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from replay.versions import VersionSpan
from replay.writer import Recorder

SYSTEM = {"role": "system", "content": "be brief"}
ASK = {"role": "user", "content": "list the files"}
CALL = {"id": "c1", "name": "bash", "arguments": '{"command": "ls"}'}
RESULT = {"role": "tool", "content": "a.txt", "tool_call_id": "c1"}
TOOL = {"name": "bash", "parameters": {"type": "object"}}


@pytest.fixture
def exported(make: Any, recorder: Recorder, replay: Any, tmp_path: Path) -> Any:
    """A session of two turns in a row and a fork whose reply is not trained; a function that exports it."""
    session = make.session("s", harness="codex", harness_version="1", task="t", group="g")
    full = {"temperature": 1.0}
    reply = {"role": "assistant", "content": "looking", "reasoning": "hm", "tool_calls": [CALL]}
    pushed = [VersionSpan("v1", 0, 1), VersionSpan("v2", 1, 2)]
    first = make.turn(session, make.end([7, 8], logprobs=[-0.5, -0.25], reply=reply, weight_versions=pushed),
                      messages=[SYSTEM, ASK], tools=[TOOL], sampling_sent=full)  # fmt: skip
    make.turn(session, make.end([9], logprobs=[-1.0]), parent_id=first, prompt_suffix=[4], prompt_length=6,
              messages=[RESULT], tools=[TOOL], sampling_sent=full)  # fmt: skip
    odd = {"role": "assistant", "content": "", "tool_calls": [{**CALL, "arguments": "not json"}]}
    make.turn(session, make.end([1], logprobs=[], untrainable="missing logprobs", reply=odd), parent_id=first,
              prompt_suffix=[5], prompt_length=6, messages=[ASK], sampling_sent=full)  # fmt: skip
    make.session("empty")
    recorder.score("s", 1.0, status="done").result()

    def export(*arguments: str) -> list[Any]:
        file = tmp_path / "out.jsonl"
        replay("export", *arguments, "--out", str(file))
        return [json.loads(line) for line in file.read_text().splitlines()]

    return export


def test_openai_messages(exported: Any) -> None:
    [row] = exported("s", "--format", "openai")
    function = {"name": "bash", "arguments": '{"command": "ls"}'}
    assert row["messages"] == [
        SYSTEM,
        ASK,
        {"role": "assistant", "content": "looking", "reasoning_content": "hm",
         "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        RESULT,
        {"role": "assistant", "content": "hello"},
    ]  # fmt: skip
    assert row["tools"] == [{"type": "function", "function": TOOL}]
    assert (row["session"], row["reward"], row["task"]) == ("s", 1.0, "t")


def test_exact_tokens_for_trl(exported: Any) -> None:
    [row] = exported("g", "--format", "trl")
    assert row["input_ids"] == [1, 2, 3, 7, 8, 4, 9]
    assert row["labels"] == [-100, -100, -100, 7, 8, -100, 9]
    assert row["logprobs"] == [0, 0, 0, -0.5, -0.25, 0, -1.0]
    assert row["weight_versions"] == [
        {"version": "v1", "start": 3, "end": 4}, {"version": "v2", "start": 4, "end": 5},
        {"version": None, "start": 6, "end": 7},  # only the version at its beginning is known
    ]  # fmt: skip
    assert row["temperatures"] == [1.0, 1.0]


def test_harbors_trajectories(exported: Any) -> None:
    main, fork = exported("s", "--format", "atif")
    assert (main["schema_version"], main["session_id"], main["trajectory_id"]) == ("ATIF-v1.7", "s", "s#2")
    assert main["agent"] == {
        "name": "codex", "version": "1", "model_name": "gpt-5",
        "tool_definitions": [{"type": "function", "function": TOOL}],
    }  # fmt: skip
    assert [(step["step_id"], step["source"]) for step in main["steps"]] == [
        (1, "system"), (2, "user"), (3, "agent"), (4, "agent"),
    ]  # fmt: skip
    called = main["steps"][2]
    assert called["tool_calls"] == [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}]
    assert called["observation"] == {"results": [{"source_call_id": "c1", "content": "a.txt"}]}
    assert called["reasoning_content"] == "hm"
    assert called["metrics"]["completion_token_ids"] == [7, 8]
    assert called["metrics"]["logprobs"] == [-0.5, -0.25]
    assert [span["version"] for span in called["extra"]["weight_versions"]] == ["v1", "v2"]
    assert main["final_metrics"] == {
        "total_prompt_tokens": 9, "total_completion_tokens": 3, "total_cached_tokens": 0, "total_steps": 4,
    }  # fmt: skip
    assert fork["steps"][-1]["tool_calls"][0]["arguments"] == {"raw": "not json"}
    assert fork["steps"][-1]["extra"]["untrainable"] == "missing logprobs"


@pytest.mark.skipif(importlib.util.find_spec("harbor") is None, reason="Harbor is not installed")
def test_harbors_own_models_take_them(exported: Any) -> None:
    from harbor.models.trajectories import Trajectory

    for document in exported("s", "--format", "atif"):
        Trajectory.model_validate(document)


@pytest.mark.usefixtures("exported")
def test_parquet(replay: Any, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for form in ("trl", "openai"):
        file = tmp_path / f"{form}.parquet"
        replay("export", "--format", form, "--out", str(file))
        assert parquet.read_table(file).num_rows == 1
    assert "write atif to a .jsonl file" in replay("export", "--format", "atif", "--out", "x.parquet", code=1).stderr


@pytest.mark.usefixtures("exported")
def test_what_there_is_to_export(replay: Any) -> None:
    assert replay("export", "s", "--format", "trl", "--reward-min", "0.5").stdout.count("\n") == 1
    assert "no session matches" in replay("export", "--reward-min", "2", code=1).stderr
    assert "have no training sequences" in replay("export", "empty", "--format", "trl", code=1).stderr
    assert "no group of that name" in replay("export", "nobody", code=1).stderr
