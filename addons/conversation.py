"""The dialect-neutral words: what a call asks, and what a reply says.

Every dialect reads its request into a :class:`Call` and writes a stream of :data:`Delta` back out; nothing
between the two knows which provider the harness believes it is talking to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

Role = Literal["system", "developer", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "tool_calls", "stop_sequence", "abort"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by the model. `arguments` is JSON text, as the model or the harness wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a document or the like, at its place in a message's text.

    `content[start:end]` are the words for it: all of it that a model gets which cannot see it.
    """

    start: int
    end: int
    kind: str
    """image | document | file | audio | video"""
    media_type: str = ""
    data: bytes | None = field(default=None, repr=False)
    """None where the request only names it (a URL, a file's id): nobody here fetches it."""
    sha256: str | None = None
    """Of `data`, hex."""
    param: str = ""
    """The request's field that holds it."""
    ignored: str = ""
    """Its entry in `ignored_fields` where the model does not see it."""
    refusal: str = ""
    """What its provider says of it where the model takes none."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `content` is plain text, parts already joined by the dialect."""

    role: Role
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    media: tuple[Media, ...] = field(default=(), compare=False)
    """What the text has words for instead, in order. Messages are compared by their words alone."""

    @property
    def images(self) -> tuple[Media, ...]:
        """What of `media` a vision model can be shown: images at hand, said by a user or a tool."""
        if self.role not in ("user", "tool"):
            return ()
        return tuple(one for one in self.media if one.kind == "image" and one.data is not None)


def continued(first: Message, more: Message) -> Message:
    """An assistant's message and what was said after it, as the one message that they are."""
    return replace(
        first,
        content=first.content + more.content,
        reasoning=first.reasoning + more.reasoning,
        tool_calls=first.tool_calls + more.tool_calls,
    )


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call. `parameters` is a JSON Schema object, or None when the harness gave none."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters in vLLM's words. None means the harness did not ask."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logit_bias: dict[str, float] | None = None

    def asked(self) -> dict[str, Any]:
        """Only what the harness really set, as JSON for the record (T6)."""
        pairs = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in pairs if v not in (None, ())}


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the model is to continue."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Extra variables for the chat template (e.g. `enable_thinking`)."""
    continue_final_message: bool = False
    """The last message is the beginning of the reply, which goes on from there (prefill)."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may, must or must not call tools. `names` restricts a `required` call to these tools."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One model call as a dialect read it."""

    conversation: Conversation
    """Its tools are those the model is to see: none where `tool_choice` is none."""
    sampling: Sampling
    model: str
    stream: bool
    ignored_fields: tuple[str, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    constraint: dict[str, Any] | None = None
    """vLLM's `structured_outputs` for an output format the harness asked for."""
    options: dict[str, Any] = field(default_factory=dict)
    """What only the same dialect's emitter needs again (e.g. `include_usage`)."""
    generate: bool = True
    """Whether anything is to be sampled: a warm-up is only kept, to be continued by the next call."""
    compaction: bool = False
    """The reply is a summary that will stand for the conversation."""
    top_logprobs: int = 0
    """How many of the likeliest tokens the harness wants to see beside each sampled one."""

    def reporting(self, what: str) -> Call:
        """The same call with one more entry in `ignored_fields`."""
        return replace(self, ignored_fields=(*self.ignored_fields, what))


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More reasoning text."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of tool call `index` (0-based, contiguous). `id` and `name` are set in its first delta only."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


Delta = ReasoningDelta | TextDelta | ToolCallDelta


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts: `completion` equals the number of sampled ids stored (T1); `cached` is part of `prompt`."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished reply. `malformed` says that markup of a tool call was left as text because it did not parse."""

    message: Message
    finish: Finish
    usage: Usage
    stop_sequence: str | None = None
    malformed: bool = False
    said: tuple[Delta, ...] = ()
    """The deltas it was sent as, in order, for the dialects that keep text and tool calls in order. Empty where
    nobody kept them: then it is reasoning, text, tool calls."""
    window_full: bool = False
    """It ended by `length` because prompt and reply fill the model's window, not because of a limit asked for."""
