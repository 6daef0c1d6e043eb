"""Reward files: found by name or path, loaded as plain Python, called with checked results."""

from __future__ import annotations

import inspect
import math
import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replay.rewards.rollouts import TASK, Rollout

SHIPPED = Path(__file__).parent / "shipped"


class RewardError(ValueError):
    """A reward file is missing, has no usable `reward` function, or returned what is no reward; the message says."""


@dataclass(frozen=True, slots=True)
class RewardFile:
    """A loaded file. `settings` are keyword arguments of its function."""

    name: str
    function: Callable[..., Any]
    settings: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, group: Sequence[Rollout]) -> list[dict[str, float]]:
        """The terms of each session of a group, in its order.

        Raises RewardError, naming what was returned, when it is not one mapping of finite numbers a session.
        """
        try:
            found = self.function(list(group), **self.settings)
        except Exception as error:
            raise RewardError(f"{self.name}: reward() raised {type(error).__name__}: {error}") from error
        if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != len(group):
            raise RewardError(f"{self.name}: reward() must return {len(group)} mappings of terms, got {found!r}")
        return [self._terms(terms, one) for terms, one in zip(found, group, strict=True)]

    def _terms(self, terms: object, one: Rollout) -> dict[str, float]:
        if not isinstance(terms, Mapping):
            raise RewardError(f"{self.name}: the terms of {one.session} must be a mapping, got {terms!r}")
        checked = {}
        for name, value in terms.items():
            if not isinstance(name, str) or name == TASK:
                raise RewardError(f"{self.name}: {name!r} cannot name a term; {TASK!r} is the task's own reward")
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise RewardError(f"{self.name}: term {name!r} of {one.session} must be a finite number, got {value!r}")
            checked[name] = float(value)
        return checked


def shipped() -> list[str]:
    """The names of the files that come with the product."""
    return sorted(path.stem for path in SHIPPED.glob("*.py"))


def load(name: str, settings: Mapping[str, float] | None = None) -> RewardFile:
    """The reward file called `name`: a shipped one, or a path to one's own.

    Raises RewardError when there is none, or when its function does not take one of `settings`.
    """
    path = SHIPPED / f"{name}.py" if name in shipped() else Path(name)
    if not path.is_file():
        raise RewardError(f"no reward file {name!r}; shipped: {', '.join(shipped())}, or name a .py file")
    function = runpy.run_path(str(path)).get("reward")
    if not callable(function):
        raise RewardError(f"{path} defines no function `reward(group)`")
    known = [p.name for p in list(inspect.signature(function).parameters.values())[1:]]
    for setting in settings or {}:
        if setting not in known:
            raise RewardError(f"{path}: reward() takes no {setting!r}; it takes: {', '.join(known) or 'nothing'}")
    return RewardFile(path.stem, function, dict(settings or {}))


def parse(text: str) -> RewardFile:
    """The reward file that `NAME` or `NAME:alpha=0.2,least=0.5` names. Raises RewardError."""
    name, _, settings = text.partition(":")
    found: dict[str, float] = {}
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        try:
            found[key] = float(value)
        except ValueError as error:
            raise RewardError(f"{text!r}: {setting!r} is not SETTING=NUMBER") from error
    return load(name, found)
