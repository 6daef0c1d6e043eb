"""Training while the record grows: waits for groups that rollouts, in other processes, complete; and knows when to end.

The record is asked again and again, once a poll. A step is due as soon as enough complete, unused groups have contrast
and are fresh enough. Groups that grew too old meanwhile are told about, once each, and counted.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from types import FrameType, TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from sqlalchemy import func, select

from replay.groups import Group
from replay.reader import Reader
from replay.schema import Session
from replay.store import Store
from trainer.advantages import Scored, credit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What the record has for the next step: complete groups that no step has used, and sessions still running.

    `stale` are complete and unused too, but sampled under weights that are too old.
    """

    contrast: tuple[Group, ...]
    flat: tuple[Group, ...]
    stale: tuple[Group, ...]
    running: int

    @classmethod
    def of(cls, store: Store, *, min_size: int, fresh: Sequence[str] | None) -> Sight:
        """Look. `fresh` are the weight versions that may be trained on; None: any."""
        reader = Reader(store)
        found = reader.groups(min_size=min_size, weight_versions=fresh)
        names = {group.name for group in found}
        every = found if fresh is None else reader.groups(min_size=min_size)
        running = select(func.count()).where(Session.status == "open", Session.group.is_not(None))
        with store.engine.connect() as connection:
            count = connection.scalar(running) or 0
        return cls(
            contrast=tuple(group for group in found if _has_contrast(group)),
            flat=tuple(group for group in found if not _has_contrast(group)),
            stale=tuple(group for group in every if group.name not in names),
            running=count,
        )

    def says(self, wanted: int) -> str:
        """This in words, as what is waited for."""
        parts = [f"{len(self.contrast)} of {wanted} groups with contrast"]
        if self.flat:
            parts.append(f"{len(self.flat)} without")
        if self.stale:
            parts.append(f"{len(self.stale)} too old")
        parts.append(f"{self.running} sessions running")
        return ", ".join(parts)


@dataclass(slots=True)
class Following:
    """Waits in `store` for `wanted` groups of at least `min_size` sessions, until `stop` is set.

    `idle` ends the waiting after that many seconds in which no group was completed (None: never). `waiting` hears what
    is being waited for, in words and in seconds so far, at every look, and `waited` when it is over; `say` hears of
    groups that are too old, once.
    """

    store: Store
    wanted: int = 1
    min_size: int = 2
    idle: float | None = None
    poll: float = 1.0
    stop: Event = field(default_factory=Event)
    waiting: Callable[[str, float], None] = lambda _text, _seconds: None
    waited: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda _: None
    stale: dict[str, int] = field(default_factory=dict)
    """The groups that were found too old, and how many sessions each has."""

    def wait(self, fresh: Sequence[str] | None) -> str | None:
        """Return None when a step can be taken on samples of the versions `fresh`; else why there will be none."""
        try:
            return self._wait(fresh)
        finally:
            self.waited()

    def _wait(self, fresh: Sequence[str] | None) -> str | None:
        began = changed = time.monotonic()
        known: set[str] | None = None
        while True:
            if self.stop.is_set():
                return "asked to stop"
            sight = Sight.of(self.store, min_size=self.min_size, fresh=fresh)
            self._tell(sight.stale)
            if len(sight.contrast) >= self.wanted:
                return None
            now = time.monotonic()
            names = {group.name for group in (*sight.contrast, *sight.flat, *sight.stale)}
            if known is not None and names - known:
                changed = now
            known = names
            if self.idle is not None and now - changed >= self.idle:
                return f"no group was completed for {self.idle:g} s ({sight.says(self.wanted)})"
            self.waiting(sight.says(self.wanted), now - began)
            self.stop.wait(self.poll)

    def summary(self) -> str | None:
        """How much was left out as too old; None where nothing was."""
        if not self.stale:
            return None
        return f"too old to be trained on: {len(self.stale)} groups with {sum(self.stale.values())} sessions"

    def _tell(self, stale: Sequence[Group]) -> None:
        new = {g.name: len(g.sessions) + len(g.failed) for g in stale if g.name not in self.stale}
        if new:
            self.stale.update(new)
            shown = ", ".join(list(new)[:4]) + (", ..." if len(new) > 4 else "")
            self.say(f"{len(new)} groups with {sum(new.values())} sessions are too old to be trained on: {shown}")


def _has_contrast(group: Group) -> bool:
    return credit([[Scored(session=session.id, reward=session.reward) for session in group.sessions]]).groups_used > 0


@contextmanager
def stoppable(say: Callable[[str], None]) -> Iterator[Event]:
    """An event that SIGINT or SIGTERM sets, so that the step in hand ends first; a second SIGINT interrupts at once."""
    stop = Event()

    def heard(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()
        say("stopping after the step in hand")

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class WaitingLine:
    """Shows what is waited for: one line that changes where `console` is a terminal, else a line a change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def __call__(self, text: str, seconds: float) -> None:
        """Show that `text` has been waited for `seconds`; a `Following.waiting`."""
        if not self._console.is_terminal:
            if text != self._last:
                self._console.print(f"waiting: {text}", markup=False, highlight=False)
        elif self._status is None:
            self._status = self._console.status(f"waiting {seconds:.0f} s: {text}")
            self._status.start()
        else:
            self._status.update(f"waiting {seconds:.0f} s: {text}")
        self._last = text

    def clear(self) -> None:
        """Take the line away: there is something to do."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._last = ""
