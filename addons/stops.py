"""Stop strings, found in text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Finds the first of several stop strings, and holds back what may become one.

    `found` is the one that was found; the text that `feed` gave until then ends right before it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """The text that can be said."""
        if not self._stops:
            return text
        text = self._held + text
        # The one that was complete first; of those, the one that began first.
        complete = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if complete:
            _, at, self.found = min(complete)
            self._held = ""
            return text[:at]
        self._held = text[len(text) - self._beginning(text) :]
        return text[: len(text) - len(self._held)]

    def flush(self) -> str:
        """What was held back, when it can become no stop string any more."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """How many of the last characters are the beginning of a stop string."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        return next(
            (size for size in range(longest, 0, -1) if any(stop.startswith(text[-size:]) for stop in self._stops)),
            0,
        )
