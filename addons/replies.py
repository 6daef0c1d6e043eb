"""Sampled ids to what the harness is told: reasoning, text and tool calls, as they come.

Theory of operation, a pipeline with one id going through at a time, so that how the ids were cut into chunks
cannot matter:

    id -> Detokeniser -> text -> Parser -> Reasoning | Text | Called -> stop strings -> white space -> deltas

The finished message is put together from the very deltas that were sent, so a stream always equals its whole.

- A stop string holds for visible text only: in reasoning or in a tool call it means nothing. What may be the
  beginning of one waits. When it is complete it is cut out with everything after it, and `stopped` asks the
  caller to abort.
- White space alone is no text: not around tool calls, not after reasoning. Within and after a text it is
  kept.
- A tool call is said when it is complete. One that does not parse is text, and the reply is `malformed`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from addons.conversation import (
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolCall,
    ToolCallDelta,
)
from addons.decode import Detokeniser
from addons.parsers.choice import ParserChoice, UnknownParser, available, check_name, parser_for
from addons.parsers.events import Called, Event, Reasoning, Text, merged
from addons.stops import StopStrings

__all__ = [
    "ParsedReply",
    "ParserChoice",
    "ReplyParser",
    "UnknownParser",
    "available",
    "check_name",
    "new_call_id",
    "parser_for",
]


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A finished reply."""

    message: Message
    finish: Finish
    stop_sequence: str | None = None
    """The stop string that ended it; not part of the text."""
    malformed: bool = False
    """Markup of a tool call was left as text because it did not parse."""
    reasoning_tokens: int = 0
    """Sampled ids inside the reasoning, its markers included; 0 with a parser that does not stream."""


def new_call_id() -> str:
    """A tool call's id in the style of Chat Completions."""
    return f"call_{secrets.token_hex(12)}"


class ReplyParser:
    """Reads one reply. Never raises on what a model samples."""

    def __init__(
        self,
        choice: ParserChoice,
        prompt: Sequence[int],
        tools: Sequence[Tool] = (),
        stop: Sequence[str] = (),
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        """`prompt` is the whole prompt's ids (only its end is looked at). Without `tools` markup of calls is
        text.
        """
        self._parser = choice.make(prompt, tools)
        self._detokeniser = Detokeniser(choice.vocabulary, prompt)
        self._vocabulary = choice.vocabulary
        self._stop_ids = choice.stop_ids
        self._new_id = new_id
        self._stops = StopStrings(stop)
        self._ended_by: int | None = None
        self._space = ""
        self._speaking: Literal["", "reasoning", "text"] = ""
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._malformed = False
        self._reasoning_tokens = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: nothing more will be said, and sampling may be aborted."""
        return self._stops.found is not None

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """More sampled ids, and what they add."""
        events: list[Event] = []
        for number in ids:
            if self._ended_by is not None:
                # Sampling went on, so that was no end.
                events += self._read(self._ended_by)
                self._ended_by = None
            if number in self._stop_ids:
                self._ended_by = number
            else:
                events += self._read(number)
        return self._say(events)

    def finish(
        self, finish_reason: Literal["stop", "length", "abort"], stop_reason: str | int | None = None
    ) -> tuple[list[Delta], ParsedReply]:
        """The reply is over, for the engine's reason; `stop_reason` is vLLM's: the stop string or stop id,
        if any.
        """
        stop = "" if self._ended_by is None else self._vocabulary.spelling(self._ended_by).decode("utf-8", "replace")
        deltas = self._say([*self._parser.finish(stop), _END])
        stop_sequence = self._stops.found or (stop_reason if isinstance(stop_reason, str) else None)
        finish: Finish = finish_reason
        if self._calls and finish_reason != "abort":
            finish = "tool_calls"
        elif stop_sequence is not None:
            finish = "stop_sequence"
        message = Message(
            "assistant",
            content="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(self._calls),
        )
        reply = ParsedReply(message, finish, stop_sequence, self._malformed, self._reasoning_tokens)
        return deltas, reply

    def _read(self, number: int) -> list[Event]:
        inside = self._parser.reasoning()
        events = self._parser.feed(number, self._detokeniser.feed(number))
        self._reasoning_tokens += inside or self._parser.reasoning()
        return events

    def _say(self, events: Sequence[Event]) -> list[Delta]:
        deltas: list[Delta] = []
        for event in merged(events):
            if self.stopped:
                break
            if isinstance(event, Text):
                self._malformed |= event.malformed
                deltas += self._say_text(self._stops.feed(event.text))
                continue
            deltas += self._say_text(self._stops.flush())
            if isinstance(event, Reasoning):
                deltas += self._say_reasoning(event.text)
            else:
                self._speaking, self._space = "", ""
                deltas += self._say_call(event) if event is not _END else []
        return _joined(deltas)

    def _say_text(self, text: str) -> list[Delta]:
        """Text, once there is more than white space."""
        if not text:
            return []
        if self._speaking != "text":
            if self._speaking == "reasoning":
                self._space = ""
            self._speaking = ""
            text = self._space + text
            if not text.strip():
                self._space = text
                return []
            self._speaking, self._space = "text", ""
        self._text.append(text)
        return [TextDelta(text)]

    def _say_reasoning(self, text: str) -> list[Delta]:
        """Reasoning without the white space around it."""
        if self._speaking != "reasoning":
            text, self._space = text.lstrip(), ""
            if not text:
                return []
            self._speaking = "reasoning"
            self._space = "\n\n" if self._reasoning else ""
        whole = self._space + text
        text = whole.rstrip()
        self._space = whole[len(text) :]
        if not text:
            return []
        self._reasoning.append(text)
        return [ReasoningDelta(text)]

    def _say_call(self, event: Called) -> list[Delta]:
        call = ToolCall(self._new_id(), event.name, event.arguments)
        self._calls.append(call)
        index = len(self._calls) - 1
        return [ToolCallDelta(index, id=call.id, name=call.name), ToolCallDelta(index, call.arguments)]


_END = Called("", "")


def _joined(deltas: Sequence[Delta]) -> list[Delta]:
    """Neighbours of one kind as one delta."""
    out: list[Delta] = []
    for delta in deltas:
        last = out[-1] if out else None
        if isinstance(delta, TextDelta) and isinstance(last, TextDelta):
            out[-1] = TextDelta(last.text + delta.text)
        elif isinstance(delta, ReasoningDelta) and isinstance(last, ReasoningDelta):
            out[-1] = ReasoningDelta(last.text + delta.text)
        else:
            out.append(delta)
    return out
