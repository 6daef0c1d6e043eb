"""The values that the recorder takes. Times are seconds since the epoch; JSON values are plain Python."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from replay import versions
from replay.versions import VersionSpan

SessionStatus = Literal["open", "done", "failed"]
TurnStatus = Literal["open", "complete", "aborted", "failed"]
EndStatus = Literal["complete", "aborted", "failed"]
Purpose = Literal["main", "subagent", "title", "compaction", "probe", "classifier", "agent_authored"]
DriftReason = Literal["first", "subagent", "compaction", "harness_rewrote", "template", "truncated", "volatile_header"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A session, by its name. Opening it again fills only what is still unknown."""

    name: str
    key_hash: str | None = None
    harness: str | None = None
    harness_version: str | None = None
    task: str | None = None
    group: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a session needs a name")
        for what in ("name", "task", "group"):
            _storable(f"session's {what}", getattr(self, what))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTurn:
    """A model call about to be sent. The recorder keeps its lists and dicts: never change them after."""

    session_id: int
    purpose: Purpose
    dialect: str
    route: str
    """Path and query as the harness sent it; credentials in it are redacted."""
    model: str
    prompt_suffix: Sequence[int]
    """Ids after the parent's prompt and sampled ids; the whole prompt when there is no parent."""
    prompt_length: int
    """Tokens of the whole prompt: the parent's prompt_length + its sampled + this suffix."""
    sampling_asked: Mapping[str, Any]
    sampling_sent: Mapping[str, Any]
    received_at: float
    body_digest: str
    """sha256 of the raw body, hexadecimal."""
    request: Mapping[str, Any]
    """The parsed body (by `codec.loads`)."""
    messages: Sequence[Mapping[str, Any]]
    """Neutral messages after the parent's reply; without a parent, all."""
    tools: Sequence[Mapping[str, Any]] = ()
    """The tools offered, neutral: name, description, parameters (JSON Schema)."""
    images: Sequence[Mapping[str, Any]] = ()
    """The images in the suffix: sha256, media_type, and offset (in the whole prompt) and length of their ids."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The images' bytes by sha256."""
    parent_id: int | None = None
    ignored_fields: Sequence[str] = ()
    drift_reason: DriftReason | None = None
    """Why there is no parent. None for a continuation, and for a call refused before it had a prompt."""
    drift_detail: str | None = None
    """In words: why there is no parent; or what the harness changed of what the model had seen."""
    rendering: Mapping[str, Any] | None = None
    """How the suffix was made: the way of the chat template, the policy for reasoning, what ended the turn before."""
    thread: str | None = None
    """What the harness itself calls the conversation within its session."""
    reply_id: str | None = None
    """The id that the reply carries on the wire."""
    opening: str | None = None
    """Of a root: sha256 of how its conversation began."""
    template_hash: str | None = None
    weight_version: str | None = None
    """Of the weights loaded when the engine was asked."""
    retry_of: int | None = None
    replays: int | None = None
    """The turn of another session that this one is answered from."""

    def __post_init__(self) -> None:
        _one_of("purpose", self.purpose, get_args(Purpose))
        if self.drift_reason is not None:
            _one_of("drift_reason", self.drift_reason, get_args(DriftReason))
        if self.parent_id is not None and self.drift_reason is not None:
            raise ValueError(f"continues turn {self.parent_id}, yet drift_reason says {self.drift_reason}")
        if self.parent_id is None and self.drift_reason is None and self.prompt_length > 0:
            raise ValueError("a root turn needs a drift_reason")
        if len(self.body_digest) != 64:
            raise ValueError(f"body_digest is a sha256 in hexadecimal, got {self.body_digest!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """How a call ended; with what was sampled, also when it was aborted."""

    status: EndStatus
    done_at: float
    sampled: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    """Of each sampled id, in nats; fewer only with `untrainable` saying why."""
    finish: str | None = None
    stop_sequence: str | None = None
    usage: Mapping[str, Any] | None = None
    reply: Mapping[str, Any] | None = None
    """The neutral assistant message."""
    after_digest: str | None = None
    """sha256 of the conversation with the reply: what a call that continues this turn has as a prefix."""
    weight_version_end: str | None = None
    """Of the weights loaded after the reply; `weight_versions` knows better."""
    weight_versions: Sequence[VersionSpan] = ()
    """Which weights sampled which of `sampled`, all of them; empty where the engine did not tell."""
    first_token_at: float | None = None
    error: Mapping[str, Any] | None = None
    untrainable: str | None = None

    def __post_init__(self) -> None:
        _one_of("status", self.status, get_args(EndStatus))
        if self.status == "complete" and self.finish is None:
            raise ValueError("a complete turn has a finish")
        if self.untrainable is None and len(self.sampled) != len(self.logprobs):
            raise ValueError(
                f"{len(self.sampled)} sampled ids, {len(self.logprobs)} logprobs; untrainable must say why"
            )
        if self.untrainable is None and any(map(math.isnan, self.logprobs)):
            raise ValueError("a logprob is NaN, and untrainable does not say why")
        if self.weight_versions:
            versions.check(self.weight_versions, len(self.sampled))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatchRow:
    """One row of a batch; a session that was looked at and left out has one too, `info={"skipped": why}`."""

    turn_id: int
    advantage: float
    info: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A training batch, recorded before or after its step. `query` is what selected it."""

    created_at: float
    query: Mapping[str, Any]
    seed: int
    weight_version: str
    rows: Sequence[NewBatchRow]
    checkpoint: str | None = None
    stats: Mapping[str, Any] | None = None


def check_reward(reward: float | None, parts: Mapping[str, float] | None) -> None:
    """Raise ValueError for a reward, or a part of one, that is not finite."""
    for name, value in {"reward": reward, **(parts or {})}.items():
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{what} {value!r} is none of {', '.join(allowed)}")


def _storable(what: str, value: str | None) -> None:
    """Names are compared, so they are never mended: refuse what PostgreSQL or UTF-8 cannot hold."""
    if value is not None and ("\0" in value or any("\ud800" <= char <= "\udfff" for char in value)):
        raise ValueError(f"a {what} must be valid Unicode without NUL, got {value!r}")
