"""Random conversations, for tests by property."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from addons.conversation import Message, ToolCall
from tests.addons.kit import call

SPECIAL = ["<|im_end|>", "<|im_start|>user\n", "<tool_call>", "</think>", "<|eot_id|>", "<end_of_turn>", "<|end|>"]

content = st.lists(
    st.one_of(st.text(max_size=6), st.sampled_from([*SPECIAL, "\n\n", " ", "한국", "🧑‍🚀", "{}", "é"])), max_size=4
).map("".join)
arguments = st.dictionaries(st.text(max_size=4), content, max_size=2).map(json.dumps)


@st.composite
def talks(draw: st.DrawFn, tools: bool, systems: bool = True) -> tuple[list[Message], Message, list[Message]]:
    """Messages before a reply, the reply, the messages after it."""
    steps = draw(sessions(tools=tools, systems=systems))
    before = [*steps.opening]
    for step in steps.turns[:-1]:
        before += [step.reply, *step.after]
    return before, steps.turns[-1].reply, list(steps.turns[-1].after)


@dataclass(frozen=True)
class Step:
    """A reply, how its sampling ended, and what the harness sends after it."""

    reply: Message
    end: Literal["stop", "length", "stop_sequence"]
    keep: float
    """Of a reply cut by `length`: the part that was sampled."""
    after: tuple[Message, ...]


@dataclass(frozen=True)
class Talk:
    """A session whose harness only appends."""

    opening: tuple[Message, ...]
    turns: tuple[Step, ...]


@st.composite
def sessions(draw: st.DrawFn, tools: bool, systems: bool = True, most: int = 3) -> Talk:
    """A session of one to `most` turns. Each reply may call several tools, reason, and be cut off."""
    opening = [Message("system", draw(content))] if systems and draw(st.booleans()) else []
    opening.append(Message("user", draw(content)))
    turns = []
    number = 0
    for _ in range(draw(st.integers(1, most))):
        end: Literal["stop", "length", "stop_sequence"] = draw(st.sampled_from(["stop", "length", "stop_sequence"]))
        calls: list[ToolCall] = []
        if tools and end == "stop":
            for _ in range(draw(st.integers(0, 2))):
                number += 1
                calls.append(call("bash", draw(arguments), number))
        reply = Message("assistant", draw(content), draw(content), tuple(calls))
        after = [Message("tool", draw(content), tool_call_id=c.id) for c in calls]
        if systems and draw(st.booleans()):
            after.append(Message("system", draw(content)))
        if not after or draw(st.booleans()):
            after.append(Message("user", draw(content)))
        turns.append(Step(reply, end, draw(st.floats(0, 1)), tuple(after)))
    return Talk(tuple(opening), tuple(turns))
