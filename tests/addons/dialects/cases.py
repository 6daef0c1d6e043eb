"""What a model may sample, and what a harness must be told of it: the cases of the invariants.

A case is a text in the Hermes form. Those with a number are from a list of faults that other proxies of this kind had;
the number is kept so that one can see that each is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.addons.dialects.speakers import Ask, Block
from tests.addons.dialects.speakers.base import arguments

ALL = ("chat", "responses", "messages", "gemini")
WITH_STOPS = ("chat", "messages", "gemini")


_PLAIN = Ask()


@dataclass(frozen=True)
class Case:
    """`text` is sampled; `want` is what was said, in order; `finish` why it ended, in neutral words."""

    name: str
    text: str
    want: tuple[Block, ...]
    finish: Literal["stop", "length", "tool_calls", "stop_sequence"] = "stop"
    ask: Ask = _PLAIN
    end: bool = True
    """The model ends its turn; else the limit ends it."""
    dialects: tuple[str, ...] = ALL


def written(command: str) -> str:
    """A call as the model writes it."""
    return f'<tool_call>\n{{"name": "bash", "arguments": {{"command": "{command}"}}}}\n</tool_call>'


def call(command: str) -> Block:
    """The same as a harness is told."""
    return ("call", "bash", arguments({"command": command}))


def text(said: str) -> Block:
    """A text."""
    return ("text", said)


def thought(said: str) -> Block:
    """A reasoning."""
    return ("reasoning", said)


LS, PWD = written("ls"), written("pwd")
COMPACT = '<tool_call>{"name":"bash","arguments":{"command":"ls"}}</tool_call>'
CASES = (
    Case("plain", "Two files.", (text("Two files."),)),
    Case("nothing", "", ()),
    Case("white-space-only", " \n\n", ()),
    Case("white-space-kept-inside", "a\n\n  b\n", (text("a\n\n  b\n"),)),
    Case("case-1-call-in-one-piece", COMPACT, (call("ls"),), "tool_calls"),
    Case("case-2-thinking-first", "<think>a</think>b", (thought("a"), text("b"))),
    Case("case-2-not-thinking", "<thin>a", (text("<thin>a"),)),
    Case("case-4-two-calls-of-one-tool", LS + PWD, (call("ls"), call("pwd")), "tool_calls"),
    Case("case-4-the-very-same-call-twice", f"{LS}\n{LS}", (call("ls"), call("ls")), "tool_calls"),
    Case("case-6-text-and-call", f"I look.\n{LS}", (text("I look.\n"), call("ls")), "tool_calls"),
    Case("case-8-no-empty-text", f"\n\n{LS}\n", (call("ls"),), "tool_calls"),
    Case("case-8-no-empty-text-after-thinking", f"<think>a</think>\n\n{LS}", (thought("a"), call("ls")), "tool_calls"),
    Case("case-9-markup-after-text", f"ok {COMPACT}", (text("ok "), call("ls")), "tool_calls"),
    Case("case-9-looks-like-markup", "a < b, <tool_cal> and <", (text("a < b, <tool_cal> and <"),)),
    Case("case-9-without-tools", COMPACT, (text(COMPACT),), ask=Ask(tools=False)),
    Case("order-is-kept", f"One.\n{LS}\nTwo.\n{PWD}\nThree.", (
        text("One.\n"), call("ls"), text("\nTwo.\n"), call("pwd"), text("\nThree."),
    ), "tool_calls"),
    Case("malformed-call-is-text", 'ok <tool_call>{"name": "bash", "arguments": {"command"</tool_call>', (
        text('ok <tool_call>{"name": "bash", "arguments": {"command"</tool_call>'),
    )),
    Case("call-that-is-no-object", '<tool_call>{"name": "bash", "arguments": "ls"}</tool_call>', (
        text('<tool_call>{"name": "bash", "arguments": "ls"}</tool_call>'),
    )),
    Case("call-whose-arguments-are-a-list", '<tool_call>{"name": "bash", "arguments": ["ls"]}</tool_call>', (
        text('<tool_call>{"name": "bash", "arguments": ["ls"]}</tool_call>'),
    )),
    # The harness's own words for it are what the model is to learn from.
    Case("call-of-a-tool-that-was-not-offered", '<tool_call>{"name": "nope", "arguments": {"a": 1}}</tool_call>', (
        ("call", "nope", arguments({"a": 1})),
    ), "tool_calls"),
    Case("call-without-arguments", '<tool_call>{"name": "bash", "arguments": {}}</tool_call>', (
        ("call", "bash", "{}"),
    ), "tool_calls"),
    Case("numbers-keep-their-digits", (
        '<tool_call>{"name": "bash", "arguments": {"n": 12345678901234567890, "x": 1.10}}</tool_call>'
    ), (("call", "bash", arguments('{"n": 12345678901234567890, "x": 1.10}')),), "tool_calls"),
    Case("case-24-stop-string", "yes</done>no", (text("yes"),), "stop_sequence", Ask(stop=("</done>",)),
         dialects=WITH_STOPS),
    Case("case-24-not-in-thinking", "<think>a\n\nb</think>c\n\nd", (thought("a\n\nb"), text("c")), "stop_sequence",
         Ask(stop=("\n\n",)), dialects=WITH_STOPS),
    Case("case-24-not-in-a-call", f"{LS}", (call("ls"),), "tool_calls", Ask(stop=("ls", "\n")), dialects=WITH_STOPS),
    Case("case-24-almost", "yes</don", (text("yes</don"),), "stop", Ask(stop=("</done>",)), dialects=WITH_STOPS),
    Case("case-25-cut-in-thinking", "<think>I will", (thought("I will"),), "length", end=False),
    Case("case-25-cut-in-text", "cut sho", (text("cut sho"),), "length", end=False),
    Case("case-25-cut-in-a-call", f"ok {LS[:40]}", (text(f"ok {LS[:40]}"),), "length", end=False),
    Case("case-25-cut-in-the-second-call", f"{LS}\n{PWD[:40]}", (call("ls"), text(f"\n{PWD[:40]}")), "tool_calls",
         end=False),
    Case("case-31-characters-in-pieces", "🧑‍🚀 한 é", (text("🧑‍🚀 한 é"),)),
    Case("case-31-in-thinking-and-calls", f"<think>🧑‍🚀</think>한\n{written('é 🧑‍🚀')}", (
        thought("🧑‍🚀"), text("한\n"), call("é 🧑‍🚀"),
    ), "tool_calls"),
)  # fmt: skip
