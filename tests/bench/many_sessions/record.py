"""Sessions by the thousand, recorded as the proxy records them: three turns each, eight a group.

Every message says `pytest`, and one in the whole store `needle`; in every hundredth session the last call is for a
title. Twenty weight versions follow each other. The last session is open still.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from replay.records import NewSession, NewTurn, TurnEnd
from replay.store import Store
from replay.writer import Recorder

TURNS = 3
WAVE = 250
"""Sessions that talk side by side, so that their writes share commits."""
HARNESSES = ("claude-code", "codex", "gemini-cli", "opencode", "pi")
WORDS = [f"word{number}" for number in range(5000)]
WEIGHTS = list(itertools.accumulate(1 / rank for rank in range(1, len(WORDS) + 1)))


@dataclass
class Talk:
    """A session while it is recorded; `length` counts tokens."""

    number: int
    id: int
    parent: int | None = None
    length: int = 0
    history: list[Mapping[str, Any]] = field(default_factory=list)


def fill(store: Store, sessions: int) -> None:
    """Record the sessions."""
    rng = random.Random(0)
    with Recorder(store) as recorder:
        for start in range(0, sessions, WAVE):
            numbers = range(start, min(start + WAVE, sessions))
            opened = [recorder.open_session(new_session(number)) for number in numbers]
            talks = [Talk(number, one.result()) for number, one in zip(numbers, opened, strict=True)]
            for turn in range(TURNS):
                calls = [new_turn(rng, talk, turn, sessions) for talk in talks]
                ids = [one.result() for one in [recorder.open_turn(call) for call in calls]]
                ends = [end(rng, talk, turn_id) for talk, turn_id in zip(talks, ids, strict=True)]
                for one in [recorder.finish_turn(*pair) for pair in zip(ids, ends, strict=True)]:
                    one.result()
            judged = [number for number in numbers if number < sessions - 1]  # the last is open still
            for one in [recorder.score(f"run-{number}", number % 3 / 2, status="done") for number in judged]:
                one.result()


def new_session(number: int) -> NewSession:
    """Eight sessions are a group."""
    return NewSession(
        name=f"run-{number}", harness=HARNESSES[number % len(HARNESSES)], harness_version="1.2.3",
        task=f"task-{number // 8 % 100}", group=f"group-{number // 8}",
        metadata={"cwd": f"runs/{number}", "argv": ["--print", said(random.Random(number), 30)]},
    )  # fmt: skip


def new_turn(rng: random.Random, talk: Talk, turn: int, sessions: int) -> NewTurn:
    """The next call: a harness re-sends its history and adds a message."""
    hidden = " needle" if talk.number == sessions // 2 else ""
    message = {"role": "user", "content": f"{talk.number} {turn} pytest {said(rng, 60)}{hidden}"}
    talk.history.append(message)
    aside = turn == TURNS - 1 and talk.number % 100 == 50
    if aside:
        talk.parent, talk.length = None, 0
    suffix = rng.choices(range(150_000), k=300)
    talk.length += len(suffix)
    return NewTurn(
        session_id=talk.id, purpose="title" if aside else "main", dialect="chat", route="/v1/chat/completions",
        model="gpt-5", prompt_suffix=suffix, prompt_length=talk.length, sampling_asked={"temperature": 1.0},
        sampling_sent={"temperature": 1.0, "max_tokens": 8192}, received_at=time.time(),
        body_digest=hashlib.sha256(f"{talk.number} {turn}".encode()).hexdigest(),
        request={"model": "gpt-5", "messages": list(talk.history), "stream": True}, messages=[message],
        parent_id=talk.parent, drift_reason="first" if talk.parent is None else None,
        weight_version=str(20 * talk.number // sessions),
    )  # fmt: skip


def end(rng: random.Random, talk: Talk, turn_id: int) -> TurnEnd:
    """The reply, after which the talk goes on."""
    sampled = rng.choices(range(150_000), k=100)
    reply = {"role": "assistant", "content": f"{turn_id} pytest {said(rng, 60)}"}
    talk.history.append(reply)
    talk.parent = turn_id
    talk.length += len(sampled)
    logprobs = [-rng.random() for _ in sampled]
    return TurnEnd(
        status="complete", done_at=time.time(), sampled=sampled, logprobs=logprobs, finish="stop", reply=reply
    )


def said(rng: random.Random, count: int) -> str:
    """Words, some much more often than others."""
    return " ".join(rng.choices(WORDS, cum_weights=WEIGHTS, k=count))
