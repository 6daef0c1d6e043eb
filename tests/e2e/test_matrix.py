"""Real harnesses, as they are, behind a real proxy: what `tap matrix` finds, and more of the same with other scripts.

The model is a script, so that what is tried is the harness and us. `make matrix` tries all sixteen.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from addons.matrix.actor import act
from addons.matrix.engine import Prompt
from addons.matrix.row import Row
from addons.matrix.run import Options, matrix
from certs import harnesses, isolation
from certs.harnesses import Harness
from replay.reader import Reader
from replay.store import Store

pytestmark = [pytest.mark.harness, pytest.mark.network]

ISOLATED = isolation.why_not() is None
ROOT = Path(__file__).parents[2] / ".harness"
TRANSPORT = {
    "mini-swe-agent": {"HTTP/1.1, whole"},
    "claude-code": {"HTTP/1.1, streamed"},
    "codex": {"WebSocket"},
    "opencode": {"HTTP/1.1, streamed"},
    "pi": {"HTTP/1.1, streamed"},
    "gemini-cli": {"HTTP/1.1, whole", "HTTP/1.1, streamed"},
}
"""The harnesses that each submission is tried with, and how their calls come."""


def tried(chosen: list[Harness], folder: Path, **options: object) -> dict[str, Row]:
    """Rows by harness; the record is in `folder`."""
    made = Options(directory=folder, root=ROOT, timeout=180, jobs=2, **options)  # type: ignore[arg-type]
    rows = asyncio.run(matrix(chosen, made, lambda name, news: None))
    return {row.harness: row for row in rows}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Each does the task once."""
    return tried([harnesses.get(name) for name in TRANSPORT], tmp_path_factory.mktemp("matrix") / "once")


@pytest.mark.parametrize("name", TRANSPORT)
def test_a_harness_does_a_task_in_one_sequence_and_nothing_goes_past_the_proxy(rows: dict[str, Row], name: str) -> None:
    row, harness = rows[name], harnesses.get(name)
    assert row.faults == ()
    assert row.run is not None
    assert (row.run.status, row.run.done) == (0, True)
    assert row.main_sequences == 1
    assert row.purposes["main"] == 2
    assert row.dialects == harness.dialects[:1]
    assert set(row.transports) == TRANSPORT[name]
    assert row.run.bypassed == (() if ISOLATED else None)


def test_side_calls_are_no_part_of_the_conversation(rows: dict[str, Row]) -> None:
    assert rows["gemini-cli"].purposes == {"classifier": 1, "main": 2}
    assert rows["opencode"].purposes == {"title": 1, "main": 2}


def test_codex_without_a_websocket_uses_post_at_once(tmp_path: Path) -> None:
    """A 404 in place of the 426 would cost it seven tries and eight seconds."""
    off = ("--set", "tap_websocket=false")
    row = tried([harnesses.get("codex")], tmp_path / "post", proxy_arguments=off)["codex"]
    assert row.faults == ("GET api.openai.com/v1/responses: 426",)
    assert (row.calls, row.purposes) == (3, {"main": 2})


STEPS = 30


def step_by_step(prompt: Prompt) -> str:
    """Many commands, every fifth of which fails, before the one that does the task."""
    calls = [content for role, content in prompt.messages if role == "assistant" and "<tool_call>" in content]
    said = act(prompt)
    if not prompt.tools or prompt.constraint is not None or len(calls) >= STEPS or "written.txt" not in said:
        return said
    number = len(calls)
    command = f"echo step {number}; exit {int(number % 5 == 0)}"
    # The call that does the task, with another command in its place.
    return re.sub(r"echo harnesstap > \S+?(?=[\\\"'])", command, said)


@pytest.fixture(scope="module")
def long_rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Each works through thirty steps before it does the task."""
    folder = tmp_path_factory.mktemp("matrix") / "long"
    return tried([harnesses.get(name) for name in TRANSPORT], folder, script=step_by_step)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSPORT)
def test_a_long_session_with_failing_tools_is_one_sequence(long_rows: dict[str, Row], name: str) -> None:
    row = long_rows[name]
    assert row.faults == ()
    assert row.purposes["main"] == STEPS + 2
    assert row.main_sequences == 1


RESUME = {
    "claude-code": "claude -p '{task}' --dangerously-skip-permissions && "
    "claude -c -p 'Say it again.' --dangerously-skip-permissions",
    "codex": "codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox '{task}' && "
    "codex exec resume --last --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox 'Say it again.'",
    "opencode": "opencode run -m anthropic/claude-sonnet-4-5 '{task}' && opencode run -c 'Say it again.'",
    "pi": "pi --model claude-opus-4-5 -p '{task}' && pi --model claude-opus-4-5 -c -p 'Say it again.'",
}


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Row]]:
    """Each does the task, ends, and is asked once more in the same conversation."""
    folder = tmp_path_factory.mktemp("matrix") / "resumed"
    chosen = []
    for name, script in RESUME.items():
        shipped = harnesses.get(name)
        program = harnesses.install(shipped, ROOT)
        path = f"PATH={program.parent}:$PATH; {script}"
        chosen.append(Harness(name=name, command=("sh", "-c", path, "{task}"), env=shipped.env))
    return folder, tried(chosen, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", RESUME)
def test_a_resumed_conversation_goes_on_in_its_sequence(resumed: tuple[Path, dict[str, Row]], name: str) -> None:
    folder, rows = resumed
    assert rows[name].faults == ()
    assert rows[name].main_sequences == 1
    with Store.open(f"sqlite:///{folder / 'harnesstap.db'}") as store:
        reader = Reader(store)
        main = [turn for turn in reader.turns(reader.session(f"matrix-{name}")) if turn.purpose == "main"]
        assert "Say it again." in json.dumps(reader.new_messages(main[-1]))
        assert len(reader.path(main[-1])) == len(main) == 3


PARTS = ("one", "two")


def with_subagents(prompt: Prompt) -> str:
    """Sends out two subagents at once before it does the task."""
    said, text = act(prompt), "\n".join(content for _, content in prompt.messages)
    if "written.txt" not in text and "Count the files" in text and prompt.tools:
        return "Seven files."
    if "written.txt" not in said or "Count the files" in text or not prompt.tools:
        return said
    sent = {"description": "Count files", "subagent_type": "general"}
    calls = ({"name": "task", "arguments": {**sent, "prompt": f"Count the files of part {part}."}} for part in PARTS)
    return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


@pytest.mark.slow
def test_opencodes_subagents_are_sequences_of_their_own(tmp_path: Path) -> None:
    """Each has a session id of its own there, and is the same session to us."""
    row = tried([harnesses.get("opencode")], tmp_path / "run", script=with_subagents)["opencode"]
    assert row.faults == ()
    assert row.purposes == {"title": 1, "main": 3, "subagent": 2}
    assert (row.main_sequences, row.sequences) == (1, 4)


def until_too_long(prompt: Prompt) -> str:
    """Fills the context by long outputs; asked for a summary it gives the task, and then does it."""
    text = "\n".join(content for _, content in prompt.messages)
    if "summarization agent" in text[:200] or "Respond with TEXT ONLY" in prompt.messages[-1][1][:200]:
        task = re.search(r"Write the single word.*", text)
        assert task is not None
        return f"<summary>\n## Goal\n{task.group()}\n</summary>"
    said, count = act(prompt), len(prompt.messages)
    if "written.txt" not in said or "## Goal" in text:
        return said
    return re.sub(r"echo harnesstap > \S+?(?=[\\\"'])", f"seq {count}1000 {count}4500", said)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "window"), [("opencode", 70_000), ("claude-code", 120_000)])
def test_our_context_length_error_makes_a_harness_compact(tmp_path: Path, name: str, window: int) -> None:
    """It is told in the provider's words, or the harness would give up; and goes on from the summary, which opencode
    keeps as the first reply of its new conversation."""
    row = tried([harnesses.get(name)], tmp_path / "run", script=until_too_long, window=window)[name]
    assert row.run is not None
    assert row.run.done
    assert row.purposes["compaction"] == 1
    refused, failed, *rest = row.faults
    assert refused == "POST api.anthropic.com/v1/messages: 400"
    assert f"maximum context length is {window} tokens" in failed
    assert rest == (["exit status 1"] if name == "opencode" else [])  # it says so of any error
    with Store.open(f"sqlite:///{tmp_path / 'run' / 'harnesstap.db'}") as store:
        reader = Reader(store)
        roots = [turn for turn in reader.turns(reader.session(f"matrix-{name}")) if turn.parent_id is None]
    assert [turn.drift_reason for turn in roots if turn.purpose == "main"] == ["first", "compaction"]
