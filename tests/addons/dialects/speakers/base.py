"""What every dialect's speaker can do, and the neutral words for it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
Block = tuple[str, ...]
"""("reasoning", text), ("text", text) or ("call", name, arguments as sorted JSON)."""
Table = Mapping[str, Mapping[str, str]]
"""state -> kind of event -> the next state. A stream begins in `idle` and is whole in `over`."""


@dataclass(frozen=True)
class Ask:
    """A call, in no dialect. It offers one tool, `bash`, or none."""

    user: str = "go"
    tools: bool = True
    stop: tuple[str, ...] = ()
    max_tokens: int = 4096


class Speaker(Protocol):
    """One dialect. `raw` are a response's bytes; what the SDK makes of them is a dict, its own dump."""

    name: str
    prefix: str
    """Of the ids of tool calls."""
    ordered: bool
    """Whether a reply keeps text and calls in the order sampled; else it is reasoning, text, calls."""

    def path(self, *, stream: bool) -> str:
        """Where a call goes."""

    def body(self, ask: Ask, *, stream: bool) -> dict[str, Any]:
        """What a call sends."""

    def whole(self, raw: bytes) -> dict[str, Any]:
        """The SDK's reading of a reply that was not streamed."""

    def streamed(self, raw: bytes) -> dict[str, Any]:
        """What the SDK's accumulator makes of a stream."""

    def wire(self, raw: bytes) -> None:
        """Assert that a stream is a lawful one."""

    def blocks(self, dump: dict[str, Any]) -> list[Block]:
        """What was said."""

    def call_ids(self, dump: dict[str, Any]) -> list[str]:
        """The ids of the calls."""

    def finish(self, dump: dict[str, Any]) -> str:
        """The dialect's own word for why it ended."""

    def finishes(self, neutral: str) -> str:
        """That word for `stop`, `length`, `tool_calls` or `stop_sequence`."""

    def usage(self, dump: dict[str, Any]) -> tuple[int, int, int]:
        """Tokens of the prompt, of the completion, and of the reasoning in it."""

    def reply_id(self, dump: dict[str, Any]) -> str:
        """The id of the reply."""

    def next_body(self, ask: Ask, dump: dict[str, Any]) -> dict[str, Any]:
        """The next call of an agent: the reply sent back as the SDK has it, results for its calls, and a word more."""


def walk(table: Table, kinds: Iterable[str]) -> None:
    """Assert that a sequence of events is one that the table allows, from `idle` to `over`."""
    state, so_far = "idle", list[str]()
    for kind in kinds:
        assert kind in table[state], f"{kind!r} in state {state!r}, after {so_far[-5:]}"
        state = table[state][kind]
        so_far.append(kind)
    assert state == "over", f"the stream ends in state {state!r}, after {so_far[-5:]}"


def events(raw: bytes) -> list[tuple[str | None, Any]]:
    """Server-sent events as (event, data), data parsed; a comment is (":", text)."""
    assert raw.endswith(b"\n\n"), raw[-40:]
    found: list[tuple[str | None, Any]] = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith(":"):
            found.append((":", lines[0]))
            continue
        kind = next((line.removeprefix("event: ") for line in lines if line.startswith("event: ")), None)
        [data] = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        found.append((kind, data if data == "[DONE]" else json.loads(data)))
    return found


def arguments(value: Any) -> str:
    """A call's arguments, comparable."""
    return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True, ensure_ascii=False)


def masked(value: Any, *keys: str) -> Any:
    """`value` without the entries that are new in every reply, and without nulls, which SDKs add at will."""
    if isinstance(value, dict):
        return {k: masked(v, *keys) for k, v in value.items() if k not in keys and v is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [masked(item, *keys) for item in value]
    return value
