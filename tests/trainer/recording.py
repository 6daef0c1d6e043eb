"""Write sessions into a store as the live side does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from replay.records import EndStatus, NewSession, NewTurn, Purpose, TurnEnd
from replay.versions import VersionSpan
from replay.writer import Recorder


def record_session(
    recorder: Recorder, name: str, *, group: str | None = None, reward: float | None = None, open: bool = False
) -> int:
    """A session, done and scored unless `open`."""
    session = recorder.open_session(NewSession(name=name, group=group, task=group, harness="test")).result()
    if not open:
        recorder.score(name, reward, status="done").result()
    return session


def record_turn(
    recorder: Recorder,
    session: int,
    suffix: Sequence[int],
    sampled: Sequence[int],
    logprobs: Sequence[float] | None = None,
    *,
    parent: tuple[int, int] | None = None,
    status: EndStatus = "complete",
    purpose: Purpose = "main",
    sampling: Mapping[str, Any] | None = None,
    version: str = "0",
    version_end: str | None = None,
    versions: Sequence[VersionSpan] = (),
    error: Mapping[str, Any] | None = None,
) -> tuple[int, int]:
    """A turn that has ended; `parent` is what the parent's call of this returned: (id, tokens so far).

    `versions` is what the engine told of its tokens; else `version` and `version_end` (the same) hold.
    """
    now = time.time()
    before = 0 if parent is None else parent[1]
    turn = recorder.open_turn(
        NewTurn(
            session_id=session,
            parent_id=None if parent is None else parent[0],
            drift_reason="first" if parent is None else None,
            purpose=purpose,
            dialect="chat",
            route="/v1/chat/completions",
            model="m",
            prompt_suffix=list(suffix),
            prompt_length=before + len(suffix),
            sampling_asked={},
            sampling_sent={"temperature": 1.0} if sampling is None else dict(sampling),
            template_hash="0" * 64,
            received_at=now,
            body_digest="0" * 64,
            request={"messages": [{"role": "user", "content": "x"}]},
            messages=[{"role": "user", "content": "x"}],
            weight_version=version,
        )
    ).result()
    recorder.finish_turn(
        turn,
        TurnEnd(
            status=status,
            done_at=now,
            sampled=list(sampled),
            logprobs=[-1.0] * len(sampled) if logprobs is None else list(logprobs),
            finish="stop",
            weight_version_end=version_end or version,
            weight_versions=versions,
            error=error,
        ),
    ).result()
    return turn, before + len(suffix) + len(sampled)
