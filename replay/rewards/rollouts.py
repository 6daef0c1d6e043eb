"""What a reward file sees of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay.reader import Reader
from replay.schema import Session

TASK = "task"
"""The part of a reward that the task's own test gave."""
TERM = "+"
"""Begins the names of the parts that reward files gave: what was added to the task's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A finished session. Counts are over its completed turns of purpose `main` and `subagent`.

    `task` is the reward of the task's own test, None where nobody could tell; `parts` are what that test printed
    beside it. `truncated` counts turns that ran into a token limit, `malformed` those whose tool call could not be
    read. `replies` are the sampled messages (role, content, reasoning, tool_calls), in the order of their calls.
    """

    session: str
    harness: str | None
    task: float | None
    parts: Mapping[str, float]
    turns: int
    tool_calls: int
    sampled_tokens: int
    truncated: int
    malformed: int
    replies: tuple[Mapping[str, Any], ...]

    @property
    def solved(self) -> bool:
        """The task's own reward is positive."""
        return self.task is not None and self.task > 0


def rollouts(reader: Reader, sessions: Sequence[Session]) -> list[Rollout]:
    """These sessions as reward files see them."""
    return [_rollout(reader, session) for session in sessions]


def task_reward(session: Session) -> float | None:
    """What the task's own test gave: the part of that name once terms were added, else the reward itself."""
    parts = session.reward_parts or {}
    value = parts.get(TASK, session.reward)
    return None if value is None or session.reward is None else float(value)


def own_parts(session: Session) -> dict[str, float]:
    """What the task's own test printed beside its reward."""
    parts = session.reward_parts or {}
    return {name: float(value) for name, value in parts.items() if name != TASK and not name.startswith(TERM)}


def _rollout(reader: Reader, session: Session) -> Rollout:
    turns = [t for t in reader.turns(session) if t.status == "complete" and t.purpose in ("main", "subagent")]
    replies = [reader.reply(turn) or {} for turn in turns]
    return Rollout(
        session=session.name,
        harness=session.harness,
        task=task_reward(session),
        parts=own_parts(session),
        turns=len(turns),
        tool_calls=sum(len(reply.get("tool_calls", ())) for reply in replies),
        sampled_tokens=sum(turn.n_sampled for turn in turns),
        truncated=sum(turn.finish == "length" for turn in turns),
        malformed=sum(bool(reply.get("malformed")) for reply in replies),
        replies=tuple(replies),
    )
