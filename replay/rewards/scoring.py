"""Score groups again: the task's own rewards, and the terms that reward files add to them now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from replay.groups import Group
from replay.reader import Reader
from replay.rewards.files import RewardError, RewardFile
from replay.rewards.rollouts import TASK, TERM, Rollout, rollouts
from replay.writer import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A session's reward before and now; None is "not judged", and stays so."""

    session: str
    before: float | None
    reward: float | None
    parts: dict[str, float]
    """The task's own reward, what its test printed, and the added terms, each with a `+` before its name."""


def again(
    reader: Reader, recorder: Recorder, groups: Iterable[Group], files: Sequence[RewardFile], *, dry: bool = False
) -> list[Scored]:
    """Give each session of `groups` its task's reward plus the terms of `files`; with `dry`, only say what it would be.

    Terms of earlier files that are not among `files` are taken away again: no files at all give the task's own reward
    back. All groups are computed before one is written. Raises RewardError; then nothing was changed.
    """
    found = [one for group in groups for one in _score(reader, group, files)]
    if not dry:
        for future in [recorder.score(one.session, one.reward, one.parts) for one in found if one.reward is not None]:
            future.result()
    return found


def _score(reader: Reader, group: Group, files: Sequence[RewardFile]) -> list[Scored]:
    views = rollouts(reader, group.sessions)
    terms: list[dict[str, float]] = [{} for _ in views]
    for file in files:
        for mine, more in zip(terms, file(views), strict=True):
            if both := mine.keys() & more.keys():
                raise RewardError(f"{file.name}: an earlier file gives the term {min(both)!r} already")
            mine |= more
    return [
        Scored(
            session=view.session,
            before=session.reward,
            reward=None if view.task is None else view.task + sum(added.values()),
            parts={} if view.task is None else _parts(view, added),
        )
        for session, view, added in zip(group.sessions, views, terms, strict=True)
    ]


def _parts(view: Rollout, added: Mapping[str, float]) -> dict[str, float]:
    terms = {f"{TERM}{name}": value for name, value in added.items()}
    # Without terms the reward is the task's own again, as if no file had ever been run.
    return {**({TASK: view.task} if terms and view.task is not None else {}), **view.parts, **terms}
