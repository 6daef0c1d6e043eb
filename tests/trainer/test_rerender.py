"""A teacher's sessions in another template: what is trained is what the student itself would have to say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replay.reader import Reader
from replay.records import NewSession, NewTurn, TurnEnd
from replay.store import Store
from replay.writer import Recorder
from trainer.imitation import Demonstrations
from trainer.policy import load_policy
from trainer.rerender import Student
from trainer.students import examples_for, fingerprint, stops

TINY = Path(__file__).parents[2] / "trainer" / "tiny" / "checkpoint"
CALL = {"id": "c1", "name": "bash", "arguments": '{"command": "ls"}'}
TOOLS = [{"name": "bash", "description": "run", "parameters": {"type": "object", "properties": {}}}]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """One session of two turns, of a teacher whose ids mean nothing here."""
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        with Recorder(store) as recorder:
            session = recorder.open_session(NewSession(name="s", task="t")).result()
            first = turn(
                recorder, session, [{"role": "system", "content": "Act."}, {"role": "user", "content": "Go"}],
                {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": [CALL]}, parent=None,
            )  # fmt: skip
            turn(
                recorder, session, [{"role": "tool", "tool_call_id": "c1", "content": "a.txt"}],
                {"role": "assistant", "content": "Done."}, parent=first,
            )  # fmt: skip
            recorder.score("s", 1.0, status="done").result()
        yield Reader(store)


def turn(
    recorder: Recorder, session: int, messages: list[dict[str, Any]], reply: dict[str, Any], parent: int | None
) -> int:
    new = NewTurn(
        session_id=session, purpose="main", dialect="messages", route="/v1/messages", model="m", prompt_suffix=[1, 2],
        prompt_length=2 if parent is None else 6, sampling_asked={}, sampling_sent={"temperature": 0.3},
        received_at=0.0, body_digest="0" * 64, request={}, messages=messages, tools=TOOLS, parent_id=parent,
        drift_reason="first" if parent is None else None, template_hash="teacher",
    )  # fmt: skip
    turn_id = recorder.open_turn(new).result()
    recorder.finish_turn(
        turn_id, TurnEnd(status="complete", done_at=1.0, sampled=[3, 4], logprobs=[-1, -1], finish="stop", reply=reply)
    ).result()
    return turn_id


def test_one_sequence_with_the_loss_on_the_students_own_words(reader: Reader) -> None:
    policy = load_policy(TINY)
    assert stops(policy) == ["<|im_end|>"]
    found = examples_for(policy, reader, reader.sessions(), Demonstrations())
    [example] = found.examples
    tokenizer = policy.tokenizer
    trained = tokenizer.decode(example.ids[example.mask])
    assert trained.count("<|im_end|>") == 2
    assert '{"name": "bash", "arguments": {"command": "ls"}}' in trained
    assert trained.endswith("Done.<|im_end|>")
    whole = tokenizer.decode(example.ids)
    assert "Go" in whole
    assert "a.txt" in whole
    assert "a.txt" not in trained
    assert found.left_out == {}


def test_sampled_ids_serve_a_student_with_the_teachers_files(reader: Reader) -> None:
    policy = load_policy(TINY)
    [example] = examples_for(policy, reader, reader.sessions(), Demonstrations(), "never").examples
    assert example.ids.tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    assert len(fingerprint(policy)) == 64


def test_a_template_that_rewrites_history_gives_an_example_a_turn_and_refusals_are_counted(reader: Reader) -> None:
    tokenizer = load_policy(TINY).tokenizer
    tokenizer.chat_template = (
        "{{ messages|length }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    refused = Student(tokenizer, ["<|im_end|>"]).examples(reader, reader.sessions(), Demonstrations())
    assert refused.examples == []
    [(reason, tokens)] = refused.left_out.items()
    assert "renders a reply differently" in reason
    assert tokens == 4
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{{ m.tool_calls[0].function.name if m.tool_calls and loop.last }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    apart = Student(tokenizer, ["<|im_end|>"]).examples(reader, reader.sessions(), Demonstrations())
    said = [tokenizer.decode(example.ids[example.mask]) for example in apart.examples]
    assert said == ["bash<|im_end|>", "Done.<|im_end|>"]
