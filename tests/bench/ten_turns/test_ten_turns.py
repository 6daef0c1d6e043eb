from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

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


def said_to(*requests: str) -> list[str]:
    """All replies; each request comes when the one before was answered without a call."""
    tool = {"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}, "required": ["command"]}}
    messages: list[tuple[str, str]] = []
    for request in requests:
        messages.append(("user", request))
        while messages[-1][0] == "user" or "<tool_call>" in messages[-1][1]:
            messages.append(("assistant", say(Prompt([{"type": "function", "function": tool}], messages))))
    return [text for role, text in messages if role == "assistant"]


def commands(replies: list[str]) -> list[str]:
    calls = [text.split("<tool_call>\n")[1].split("\n</tool_call>")[0] for text in replies if "<tool_call>" in text]
    return [json.loads(call)["arguments"]["command"] for call in calls]


def test_the_script_takes_ten_turns() -> None:
    replies = said_to(TASK.format(path="/x/written.txt"))
    assert len(replies) == TURNS
    assert all(text.startswith("<think>\n") for text in replies)
    assert commands(replies) == [*COMMANDS, "echo harnesstap > /x/written.txt"]


def test_or_the_same_in_two_requests() -> None:
    first, second = (words[-1] for words in map(shlex.split, _halves("opencode")))
    replies = said_to(first.replace("{task}", TASK.format(path="/x/written.txt")), second)
    assert len(replies) == TURNS
    assert [number for number, text in enumerate(replies) if "<tool_call>" not in text] == [4, 9]
    assert commands(replies) == [*COMMANDS[:-1], "echo harnesstap > /x/written.txt"]


def test_a_harness_takes_up_its_conversation() -> None:
    first, again = _halves("codex")
    assert first.startswith("PATH=/opt/codex/bin:$PATH; codex exec --skip-git-repo-check ")
    assert again.startswith("codex exec resume --last --skip-git-repo-check ")
    mini = harnesses.get("mini-swe-agent")
    assert talking(mini, Path("mini")) == mini


def _halves(name: str) -> list[str]:
    return talking(harnesses.get(name), Path(f"/opt/{name}/bin/{name}")).command[2].split(" && ")


def test_aider_is_asked_ten_times() -> None:
    command = talking(harnesses.get("aider"), Path("/opt/aider")).command[2]
    assert command.count("again, for the time") == TURNS - 1
    assert "| aider --model" in command
    assert "--message" not in command
