"""Claude Code, as it is, in a session with all it has: tools, parallel subagents, a resumed conversation, a summary.

The model is a script. What counts is where each call lands: the agent's are one sequence, each subagent's are one, and
the summary that the conversation goes on from is told as such.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from addons.matrix.actor import act
from addons.matrix.engine import Prompt
from addons.matrix.run import Options, matrix
from certs import harnesses
from certs.harnesses import Harness
from replay.reader import Reader
from replay.schema import Turn
from replay.store import Store

pytestmark = [pytest.mark.harness, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).parents[2] / ".harness"
STEPS = 3
"""Commands that the agent runs before it sends out its subagents, and each of those before it reports."""
SUBTASK = "Count the files of part"
SUMMARY = (
    "The word harnesstap was written into the file, as the task asked.\nTwo agents counted the files of two parts."
)
COMMAND = (
    "claude -p '{task}' --dangerously-skip-permissions && "
    "claude -c -p '/compact' --dangerously-skip-permissions && "
    "claude -c -p 'Say it again.' --dangerously-skip-permissions"
)


def script(prompt: Prompt) -> str:
    """Some commands, two subagents at once that each run some, then the task; and a summary when asked for one."""
    tools = {tool["function"]["name"]: tool["function"] for tool in prompt.tools}
    asked = prompt.messages[-1][1] if prompt.messages else ""
    if "summary of the conversation" in asked:
        return f"<analysis>There is little.</analysis>\n<summary>\n{SUMMARY}\n</summary>"
    said = act(prompt)
    agent = next((name for name, tool in tools.items() if "subagent_type" in tool["parameters"]["properties"]), None)
    part = next((text for role, text in prompt.messages if role == "user" and SUBTASK in text), None)
    calls = [text for role, text in prompt.messages if role == "assistant" and "<tool_call>" in text]
    subagent = part is not None and not any("written.txt" in text for role, text in prompt.messages if role == "user")
    if len(calls) < STEPS and (subagent or "written.txt" in said):
        return _call("Bash", {"command": f"echo step {len(calls)}", "description": "A step"})
    if subagent:
        return "Seven files."
    if agent is not None and "written.txt" in said and len(calls) == STEPS:
        sent = {"subagent_type": "general-purpose", "description": "Count files"}
        return "\n".join(_call(agent, {**sent, "prompt": f"{SUBTASK} {part}."}) for part in ("one", "two"))
    return said


def _call(name: str, arguments: dict[str, str]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> list[Turn]:
    """All turns of the session."""
    folder = tmp_path_factory.mktemp("claude") / "session"
    shipped = harnesses.get("claude-code")
    program = harnesses.install(shipped, ROOT)
    command = ("sh", "-c", f"PATH={program.parent}:$PATH; {COMMAND}", "{task}")
    harness = Harness(name="claude-code", command=command, env=shipped.env)
    options = Options(directory=folder, root=ROOT, timeout=240, script=script)
    [row] = asyncio.run(matrix([harness], options, lambda name, news: None))
    assert row.run is not None
    assert (row.run.status, row.run.done) == (0, True), (folder / "claude-code" / "harness.log").read_text()
    with Store.open(f"sqlite:///{folder / 'harnesstap.db'}") as store:
        reader = Reader(store)
        return reader.turns(reader.session("matrix-claude-code"))


def reasons(turns: list[Turn], purpose: str) -> list[str | None]:
    """Why the roots of a purpose are roots."""
    return [turn.drift_reason for turn in turns if turn.parent_id is None and turn.purpose == purpose]


def ends(turns: list[Turn], purpose: str) -> int:
    """Sequences of a purpose: turns that none of the same purpose continues."""
    continued = {turn.parent_id for turn in turns if turn.purpose == purpose}
    return sum(turn.id not in continued for turn in turns if turn.purpose == purpose)


def test_the_agent_is_one_sequence_up_to_the_summary_and_one_after_it(turns: list[Turn]) -> None:
    assert reasons(turns, "main") == ["first", "compaction"]
    assert ends(turns, "main") == 2


def test_each_subagent_is_one_sequence(turns: list[Turn]) -> None:
    assert reasons(turns, "subagent") == ["subagent", "subagent"]
    assert ends(turns, "subagent") == 2
    by_thread = Counter(turn.thread for turn in turns if turn.purpose == "subagent")
    assert list(by_thread.values()) == [STEPS + 1, STEPS + 1]


def test_the_summary_continues_the_agent_and_is_none_of_its_turns(turns: list[Turn]) -> None:
    [summary] = [turn for turn in turns if turn.purpose == "compaction"]
    parent = next(turn for turn in turns if turn.id == summary.parent_id)
    assert parent.purpose == "main"
    assert {turn.purpose for turn in turns} == {"main", "subagent", "compaction"}
    assert {turn.status for turn in turns} == {"complete"}
