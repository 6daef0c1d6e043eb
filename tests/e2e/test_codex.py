"""Codex, unmodified and newest, finishes a task over each transport: Responses on a WebSocket, and by POST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from addons.model import ModelFiles
from tests.e2e import harnessed

pytestmark = [pytest.mark.harness, pytest.mark.network, pytest.mark.slow]

TASK = "Write the word written into out.txt."
WRITE = "echo written > out.txt"
TOOLS = ("-m", "gpt-5.2-codex")
"""A model that Codex offers ordinary tools to."""


def finished(run: harnessed.Run) -> None:
    assert run.code == 0, run.out
    assert (run.workspace / "out.txt").read_text() == "written\n", run.out
    assert "All done." in run.out
    assert {turn.dialect for turn in run.turns} == {"responses"}
    assert {turn.status for turn in run.turns} == {"complete"}
    assert run.connected == {"127.0.0.1"}


def ids(bodies: list[dict[str, Any]]) -> list[str | None]:
    return [body.get("previous_response_id") for body in bodies]


async def test_over_a_websocket(tiny: ModelFiles, tmp_path: Path) -> None:
    said = [f"I will.\n{harnessed.call('exec_command', cmd=WRITE)}", "All done."]
    run = await harnessed.run("codex", TASK, said, tiny, tmp_path, *TOOLS)
    finished(run)
    run.is_one_chain()
    first, second = run.turns
    assert [body["type"] for body in run.bodies] == ["response.create"] * 2
    warm, continued = ids(run.bodies)
    # The warm-up carries the instructions, and is continued though it is no turn.
    assert warm is not None
    assert warm != first.reply_id
    assert "instructions" not in run.bodies[0] or run.bodies[0]["input"] != []
    assert continued == first.reply_id
    assert [item["type"] for item in run.bodies[1]["input"]] == ["function_call_output"]
    assert (first.purpose, second.purpose) == ("main", "main")
    assert (first.untrainable, second.untrainable) == (None, None)


async def test_with_its_newest_model(tiny: ModelFiles, tmp_path: Path) -> None:
    """Its tools are an item of the input, in a namespace, and one is called by a program that calls others."""
    program = f'text(await tools.exec_command({{"cmd": "{WRITE}"}}))'
    said = [harnessed.call("functions__exec", input=program), "All done."]
    run = await harnessed.run("codex", TASK, said, tiny, tmp_path)
    finished(run)
    run.is_one_chain()
    assert run.bodies[0]["input"][0]["type"] == "additional_tools"
    assert [item["type"] for item in run.bodies[1]["input"]] == ["custom_tool_call_output"]


async def test_without_a_websocket_it_posts(tiny: ModelFiles, tmp_path: Path) -> None:
    said = [harnessed.call("exec_command", cmd=WRITE), "All done."]
    run = await harnessed.run("codex", TASK, said, tiny, tmp_path, *TOOLS, tap_websocket="false")
    finished(run)
    run.is_one_chain()
    assert ids(run.bodies) == [None, None]
    assert ["type" in body for body in run.bodies] == [False, False]
    assert len(run.bodies[1]["input"]) > len(run.bodies[0]["input"])


@pytest.mark.parametrize("websocket", ["true", "false"])
async def test_it_goes_on_after_a_compaction(tiny: ModelFiles, tmp_path: Path, websocket: str) -> None:
    said = [harnessed.call("exec_command", cmd=WRITE), "I wrote the file; nothing remains.", "All done."]
    run = await harnessed.run(
        "codex", TASK, said, tiny, tmp_path, *TOOLS, "-c", "model_auto_compact_token_limit=5000",
        tap_websocket=websocket,
    )  # fmt: skip
    finished(run)
    assert "context compacted" in run.out
    main, summary, after = run.turns
    assert (main.purpose, summary.purpose, after.purpose) == ("main", "compaction", "main")
    assert summary.parent_id == main.id
    assert run.bodies[1]["input"][-1] == {"type": "compaction_trigger"}
    assert (after.parent_id, after.drift_reason) == (None, "compaction")
    assert run.bodies[2]["input"][-1]["type"] == "compaction"
