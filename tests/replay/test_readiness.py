from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.reader import Reader
from replay.readiness import examine
from replay.rerender import Renderer, Rows, joined

TINY = Path(__file__).parents[2] / "trainer" / "tiny" / "checkpoint"


@pytest.fixture
def mixed(make: Any) -> None:
    """Two turns in a row, a fork of the first, a title, a failed call and its retry, an untrainable turn."""
    session = make.session("mixed", group="g")
    first = make.turn(session)
    make.turn(session, parent_id=first, prompt_suffix=[4], prompt_length=6)
    make.turn(session, parent_id=first, prompt_suffix=[5], prompt_length=6)
    make.turn(session, make.end([9]), purpose="title", drift_reason="subagent")
    failed = make.turn(session, make.end((), status="failed", finish=None, reply=None, error={"message": "no"}),
                       parent_id=first, prompt_suffix=[6], prompt_length=6)  # fmt: skip
    make.turn(session, make.end([1], untrainable="constrained decoding"), parent_id=first, prompt_suffix=[6],
              prompt_length=6, retry_of=failed)  # fmt: skip


@pytest.mark.usefixtures("mixed")
def test_every_sampled_token_is_trained_or_has_a_reason(reader: Reader) -> None:
    found = examine(reader, reader.session("mixed"))
    assert (found.turns, found.sampled, found.trained, found.unexplained) == (6, 8, 6, 0)
    assert found.ours == Rows(2, 8 + 8)
    assert found.masked == 1 - 6 / 16
    assert {reason: (left.tokens, left.turns) for reason, left in found.left_out.items()} == {
        "purpose title": (1, [4]),
        "turn failed": (0, [5]),
        "untrainable: constrained decoding": (1, [6]),
    }
    assert [(fork.turn, fork.parent, fork.reason) for fork in found.forks] == [
        (3, 1, "continues a turn that was continued before"),
        (5, 1, "continues a turn that was continued before"),
        (6, 1, "continues a turn that was continued before"),
    ]
    assert found.retries == ((6, 5),)
    assert examine(reader, reader.session("mixed"), ("title",)).trained == 1


def test_rows_by_exact_prefix() -> None:
    assert joined([([1, 2], [3]), ([1, 2, 3, 4], [5]), ([1, 2, 9], [5])]) == Rows(2, 5 + 4)
    assert joined([([1], [2]), ([1, 2], [3]), ([1, 2, 3], [4])]) == Rows(1, 4)


def test_against_rendering_every_turn_anew(make: Any, reader: Reader) -> None:
    """A reply that a tokenizer would write otherwise than it was sampled: one row with us, one a turn re-rendered."""
    renderer = Renderer.load(TINY)
    question = {"role": "user", "content": "hi"}
    prompt = renderer.prompt([question], [])
    session = make.session("s")
    h, e = renderer._tokenizer.encode("h", add_special_tokens=False), renderer._tokenizer.encode("e")
    sampled = [*h, *e, renderer._tokenizer.eos_token_id]
    reply = {"role": "assistant", "content": "he"}
    first = make.turn(session, make.end(sampled, reply=reply), prompt_suffix=prompt, prompt_length=len(prompt))
    make.turn(session, make.end(sampled, reply=reply), parent_id=first, prompt_suffix=[7],
              prompt_length=len(prompt) + len(sampled) + 1, messages=[question])  # fmt: skip
    found = examine(reader, reader.session("s"), renderer=renderer)
    assert found.ours == Rows(1, len(prompt) + 2 * len(sampled) + 1)
    assert found.rerendered is not None
    again = renderer.prompt([question, reply, question], [])
    whole = [*prompt, *sampled]
    rows = 1 if again[: len(whole)] == whole else 2
    assert found.rerendered.rows == rows
    assert found.refused == {}


@pytest.mark.usefixtures("mixed")
def test_the_report_command(replay: Any) -> None:
    output = replay("report", "mixed").output
    assert "fork #3 of #1 (main): continues a turn that was continued before" in output
    assert "not trained: untrainable: constrained decoding  1 tokens in #6" in output
    assert "#6 is a retry of #5" in output
    assert "give --tokenizer MODEL_DIR" in output
    [one] = json.loads(replay("report", "g", "--json").output)["sessions"]
    assert (one["sequences"], one["trained"], one["unexplained"]) == (2, 6, 0)
    assert "no group of that name" in replay("report", "other", code=1).stderr
    assert "no tokenizer.json" in replay("report", "--tokenizer", "/none", code=1).stderr
    assert "not computed" not in replay("report", "--tokenizer", str(TINY)).output
