from __future__ import annotations

import json
from dataclasses import replace

import pytest

from addons.conversation import Conversation, Message, ToolCall
from addons.matrix.actor import TASK
from addons.matrix.engine import Prompt
from addons.model import ModelFiles
from addons.prompts import Prompts
from certs import harnesses
from replay.rerender import joined
from tests.addons.kit import BASH, chatml
from tests.bench.ten_turns.script import COMMANDS, TURNS, say, talking
from tests.bench.ten_turns.ways import Asked, exact_prefix, rerendered

RESULT = Message("tool", "a\nb", tool_call_id="c1")
REPLY = Message("assistant", "", "Hm.", (ToolCall("c1", "bash", '{"command": "ls"}'),))
SAYS = '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "bash", "arguments": {"command":"ls"}}\n</tool_call><|im_end|>'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return chatml(tmp_path_factory.mktemp("model"))


def made(model: ModelFiles, resent: Message) -> tuple[int, int]:
    """Rows of two calls, by exact prefix and re-rendered; the second brings `resent` where the model said `REPLY`, with
    its arguments spelt without a space."""
    prompts = Prompts(model)
    first = Conversation((Message("user", "List the files."),), (BASH,))
    again = Conversation((*first.messages, resent, RESULT), (BASH,))
    sampled = model.tokenizer.encode(SAYS, add_special_tokens=False)
    calls = [Asked(one, REPLY, (prompts.first(one), sampled)) for one in (first, again)]
    return joined(exact_prefix(prompts, calls)).rows, joined(rerendered(prompts, calls)).rows


def test_what_is_resent_exactly_goes_on(model: ModelFiles) -> None:
    """Re-rendered, it does not: the template spells the arguments otherwise."""
    assert made(model, REPLY) == (1, 2)


@pytest.mark.parametrize(
    "resent",
    [
        replace(REPLY, reasoning=""),
        replace(REPLY, content="\n"),
        replace(REPLY, tool_calls=(ToolCall("c1", "bash", '{"command":"ls"}'),)),
    ],
)
def test_what_is_changed_at_all_does_not(model: ModelFiles, resent: Message) -> None:
    assert made(model, resent) == (2, 2)


def test_the_script_takes_ten_turns() -> None:
    tool = {"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}, "required": ["command"]}}
    messages = [("user", TASK.format(path="/x/written.txt"))]
    for _ in range(TURNS):
        messages.append(("assistant", say(Prompt([{"type": "function", "function": tool}], messages))))
    said = [text for role, text in messages if role == "assistant"]
    assert all(text.startswith("<think>\n") for text in said)
    commands = [
        json.loads(text.split("<tool_call>\n")[1].split("\n</tool_call>")[0])["arguments"]["command"]
        for text in said[:-1]
    ]
    assert commands == [*COMMANDS, "echo harnesstap > /x/written.txt"]
    assert said[-1].endswith("I am finished.")


def test_aider_is_asked_ten_times() -> None:
    command = talking(harnesses.get("aider"), "/bin/aider").command[2]
    assert command.count("again, for the time") == TURNS - 1
    assert "| /bin/aider --model" in command
