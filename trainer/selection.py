"""From the record to what a step trains on: complete groups, their credit, their rows; and back, as a stored batch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from replay import versions
from replay.groups import Group
from replay.reader import Reader
from replay.records import NewBatch, NewBatchRow
from replay.schema import Session, Turn
from trainer import batches
from trainer.advantages import Credit, Scale, Scored, credit
from trainer.batches import Credited
from trainer.sequences import TurnTokens, rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How groups become rows. It is stored with the batch, so that the batch can be built again."""

    scale: Scale = "std"
    purposes: tuple[str, ...] = ("main",)
    max_tokens: int | None = None
    balance_sessions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rows of some groups. `left_out` counts sampled tokens that are not trained, by reason.

    `skipped` maps a session that teaches nothing to the reason.
    """

    groups: tuple[Group, ...]
    rows: tuple[Credited, ...]
    credit: Credit
    left_out: Counter[str] = field(default_factory=Counter)
    skipped: Mapping[int, str] = field(default_factory=dict)

    @property
    def weight_versions(self) -> dict[str, int]:
        """Trained tokens by the weight version that sampled them, most first; those of no known one as "unknown"."""
        found: Counter[str] = Counter()
        for item in self.rows:
            for span in item.row.spans:
                found[span.weight_version or "unknown"] += span.end - span.start
        return dict(found.most_common())

    def lag(self, current: int) -> Lag:
        """How much older than version `current` the weights were that sampled the trained tokens."""
        lags: Counter[int] = Counter()
        unknown = 0
        for version, tokens in self.weight_versions.items():
            number = version_number(version)
            if number is None:
                unknown += tokens
            else:
                lags[current - number] += tokens
        if not lags:
            return Lag(mean=None, max=None, unknown=unknown)
        return Lag(mean=sum(lag * n for lag, n in lags.items()) / lags.total(), max=max(lags), unknown=unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """In versions: the mean over trained tokens and the largest; None where no token's version is known.

    `unknown` counts the trained tokens left out: those without a version, or with one that is no number.
    """

    mean: float | None
    max: int | None
    unknown: int


def version_number(version: str) -> int | None:
    """`version` as a number: vLLM calls the weights it was started on "default", here 0. None for any other name."""
    if version == "default":
        return 0
    return int(version) if version.isdecimal() else None


def turn_tokens(reader: Reader, session: Session) -> list[TurnTokens]:
    """The turns of `session`, with their ids and logprobs."""
    return [tokens_of(reader, turn) for turn in reader.turns(session)]


def tokens_of(reader: Reader, turn: Turn) -> TurnTokens:
    """One turn with its ids and logprobs."""
    sampled, logprobs = reader.sampled(turn)
    prompt = reader.prompt_ids(turn)
    return TurnTokens(
        id=turn.id,
        session=turn.session_id,
        parent=turn.parent_id,
        purpose=turn.purpose,
        status=turn.status,
        untrainable=turn.untrainable,
        suffix=np.array(prompt[len(prompt) - turn.suffix_length :], dtype=np.int32),
        sampled=np.array(sampled, dtype=np.int32),
        logprobs=np.array(logprobs, dtype=np.float32),
        sampling=turn.sampling_sent,
        versions=versions.spans_of(turn),
    )


def select(reader: Reader, groups: Sequence[Group], choice: Choice) -> Selection:
    """The rows of `groups` with their sessions' advantages. Only sessions that are done and scored have a say."""
    earned = credit([[Scored(session=s.id, reward=s.reward) for s in group.sessions] for group in groups], choice.scale)
    rows: list[Credited] = []
    left_out: Counter[str] = Counter()
    skipped: dict[int, str] = {}
    for group in groups:
        skipped.update({session.id: "failed" for session in group.failed})
        for session in group.sessions:
            advantage = earned.advantages.get(session.id)
            if advantage is None:
                skipped[session.id] = "no reward" if session.reward is None else "no contrast in its group"
                continue
            kept = rows_of(turn_tokens(reader, session), purposes=choice.purposes, max_tokens=choice.max_tokens)
            left_out.update(kept.left_out)
            if not kept.rows:
                skipped[session.id] = "nothing trainable"
            rows += [Credited(row, advantage) for row in kept.rows]
    if choice.balance_sessions and rows:
        rows = batches.balanced(rows)
    return Selection(groups=tuple(groups), rows=tuple(rows), credit=earned, left_out=left_out, skipped=skipped)


def batch_record(
    reader: Reader,
    selection: Selection,
    *,
    choice: Choice,
    query: Mapping[str, Any],
    seed: int,
    weight_version: str,
    checkpoint: str | None,
    stats: Mapping[str, Any],
) -> NewBatch:
    """`selection` as a batch for the record; its groups then count as consumed, also those that taught nothing.

    `query` is what chose the groups; `choice` and their names are added.
    """
    stored = [
        NewBatchRow(
            turn_id=item.row.turns[-1],
            advantage=item.advantage,
            info={"trained": item.row.trained, "turns": list(dict.fromkeys(span.turn for span in item.row.spans))},
        )
        for item in selection.rows
    ]
    for group in selection.groups:
        for session in (*group.sessions, *group.failed):
            reason = selection.skipped.get(session.id)
            turns = reader.turns(session) if reason is not None else []
            if turns:
                stored.append(NewBatchRow(turn_id=turns[-1].id, advantage=0.0, info={"skipped": reason}))
    how = {
        "method": "grpo",
        "groups": [group.name for group in selection.groups],
        "scale": choice.scale,
        "purposes": list(choice.purposes),
        "max_tokens": choice.max_tokens,
        "balance_sessions": choice.balance_sessions,
    }
    return NewBatch(
        created_at=time.time(),
        query={**query, **how},
        seed=seed,
        weight_version=weight_version,
        rows=stored,
        checkpoint=checkpoint,
        stats=stats,
    )


def up_to(groups: Sequence[Group], count: int | None) -> list[Group]:
    """The first groups of `groups`, until `count` of them have contrast; None takes all.

    Groups without contrast on the way are taken along: so they are consumed, and never stand in the way again.
    """
    taken: list[Group] = []
    contrasts = 0
    for group in groups:
        if count is not None and contrasts >= count:
            break
        taken.append(group)
        contrasts += len({session.reward for session in group.sessions} - {None}) > 1
    return taken


def explain_nothing(reader: Reader, selection: Selection, min_size: int) -> str:
    """Why there is nothing to train on, in terms of what the record holds and what to do about it."""
    groups = selection.groups
    if not groups:
        sessions = reader.sessions()
        if not sessions:
            return "the record holds no sessions yet: run some with `trainer rollout`"
        grouped = {s.group for s in sessions if s.group is not None}
        still_open = {s.group for s in sessions if s.group is not None and s.status == "open"}
        complete = len(reader.groups(min_size=min_size, include_trained=True))
        return (
            f"no complete, untrained group of at least {min_size} sessions. The record holds {len(sessions)} sessions, "
            f"{sum(s.group is None for s in sessions)} without a group; {len(grouped)} groups, of which "
            f"{len(still_open)} have open sessions and {complete} are complete, but trained already or too old. "
            "Run more with `trainer rollout`, or score open sessions with `replay score`."
        )
    if selection.credit.groups_used:
        reasons = ", ".join(f"{reason}: {tokens}" for reason, tokens in selection.left_out.most_common())
        return (
            f"{selection.credit.groups_used} groups have contrast, but none of their sampled tokens may be trained "
            f"({reasons or 'their sessions have no turns'})"
        )
    seen = []
    for group in groups[:8]:
        rewards = ["none" if s.reward is None else f"{s.reward:g}" for s in group.sessions]
        failed = f", {len(group.failed)} failed" if group.failed else ""
        seen.append(f"  {group.name}: {len(group.sessions)} done{failed}, rewards {' '.join(rewards) or '-'}")
    more = f"\n  ... and {len(groups) - 8} more" if len(groups) > 8 else ""
    return (
        "no group has contrast: where all rewards are equal, GRPO has nothing to learn from. Seen:\n"
        + "\n".join(seen)
        + more
        + "\nRun harder or easier tasks, or larger groups (`trainer rollout --group-size 8`)."
    )
