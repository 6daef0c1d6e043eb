"""What is kept of a watched harness: a form that made-up sessions can be poured into."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from trainer.tiny import probe
from trainer.tiny.harness import Output
from trainer.tiny.watched import Watched

FOLDER, ROOT = Path("/w/sessions/x/workspace"), Path("/w/.harness")
TOOLS = [{"name": "read", "parameters": {}}, {"name": "run_commands", "parameters": {}}]


def messages(told: list[str]) -> list[dict[str, Any]]:
    system = f"You work in {FOLDER}. Help is in {ROOT}/doc. Today is 2026-11-30, or 11/30/2026."
    found = [{"role": "system", "content": system}, {"role": "user", "content": f"{probe.PROMPT}"}]
    for text in told:
        found += [{"role": "assistant", "content": ""}, {"role": "tool", "content": text}]
    return found


def quoted(command: str, text: str, status: int = 0) -> str:
    return json.dumps({"query": command, "result": text} | ({"error": f"code {status}"} if status else {}))


def watched() -> Watched:
    printed = (probe.SHOWN, "", probe.COMPLAINT, probe.LISTED, "")
    statuses = (0, 0, 1, 1, 1)
    return Watched.of("made-up", messages(list(map(quoted, probe.COMMANDS, printed, statuses))), TOOLS, FOLDER, ROOT)


def test_an_opening_has_the_task_and_nothing_of_the_machine_or_day_it_was_watched_on() -> None:
    harness = watched()
    drawn = [harness.draw_opening("Copy a to b", random.Random(seed)) for seed in range(20)]
    systems = {one[0]["content"] for one in drawn}
    assert all(one[1] == {"role": "user", "content": "Copy a to b"} for one in drawn)
    assert len(systems) == 20
    assert not any(str(FOLDER) in text or str(ROOT) in text or "2026-11-30" in text for text in systems)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ('cat "a b"', Output("pear\n", "", 0)),
        ("touch x", Output("", "", 0)),
        ("cp a b", Output("cp: no a\n", "cp: no a\n", 1)),
        ("grep x nowhere", Output("grep: nowhere\n", "grep: nowhere\n", 2)),
        ("grep -c x a", Output("0\n", "", 1)),
        ("grep x a", Output("", "", 1)),
    ],
)
def test_results_are_worded_as_the_harness_words_them(command: str, output: Output) -> None:
    assert watched().result(command, output)["content"] == quoted(command, output.text, output.returncode)


def test_calls_go_to_the_shell_tool_and_a_word_ends_the_session() -> None:
    [call] = watched().call("ls")["tool_calls"]
    assert call["function"] == {"name": "run_commands", "arguments": {"commands": ["ls"]}}
    assert watched().finish() == {"role": "assistant", "content": "Done."}


def test_a_harness_that_was_watched_is_the_same_from_its_file(tmp_path: Path) -> None:
    watched().save(tmp_path / "it.json")
    assert Watched.load(tmp_path / "it.json") == watched()


def test_a_session_that_did_not_answer_all_probes_is_refused() -> None:
    with pytest.raises(ValueError, match="answered 2 of 5"):
        Watched.of("made-up", messages(["a", "b"]), TOOLS, FOLDER, ROOT)


def test_output_that_is_told_as_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="is not in what the harness told"):
        Watched.of("made-up", messages(["nothing"] * 5), TOOLS, FOLDER, ROOT)
