"""Pi, unmodified, finishes a task: over Messages by thread deltas, and over Responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from addons.model import ModelFiles
from tests.e2e import harnessed

pytestmark = [pytest.mark.harness, pytest.mark.network, pytest.mark.slow]

TASK = "Write the word written into out.txt."
SAID = [
    f"I will.\n{harnessed.call('bash', command='echo written > out.txt')}",
    harnessed.call("read", path="out.txt"),
    "All done.",
]


def finished(run: harnessed.Run, dialect: str) -> None:
    assert run.code == 0, run.out
    assert (run.workspace / "out.txt").read_text() == "written\n", run.out
    assert "All done." in run.out
    assert [(turn.dialect, turn.status, turn.purpose) for turn in run.turns] == [(dialect, "complete", "main")] * 3
    run.is_one_chain()
    assert run.connected == {"127.0.0.1"}


async def test_over_messages_by_thread_deltas(tiny: ModelFiles, tmp_path: Path) -> None:
    run = await harnessed.run("pi", TASK, SAID, tiny, tmp_path)
    finished(run, "messages")
    replies = [turn.reply_id for turn in run.turns]
    assert [body["thread"] for body in run.bodies] == [
        {"type": "create"},
        {"type": "continue", "previous_message_id": replies[0]},
        {"type": "continue", "previous_message_id": replies[1]},
    ]
    for body in run.bodies[1:]:
        assert body.keys().isdisjoint({"system", "tools"})
        assert [block["type"] for message in body["messages"] for block in message["content"]] == ["tool_result"]


async def test_over_responses(tiny: ModelFiles, tmp_path: Path) -> None:
    more = ("--provider", "openai", "--model", "gpt-5.2", "-p")
    run = await harnessed.run("pi", TASK, SAID, tiny, tmp_path, *more, env={"OPENAI_API_KEY": "dummy"})
    finished(run, "responses")
