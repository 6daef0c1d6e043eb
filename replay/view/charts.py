"""Numbers as the coordinates of SVG pictures, which the templates draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from replay.timings import Timing

WIDTH, HEIGHT = 560.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 76.0, 10.0, 10.0, 22.0
"""Margins, for what stands at the axes."""
BAR = 1000.0
"""The width that a bar of timings counts in."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value at its place."""

    x: float
    y: float
    at: int
    value: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A value, written at its height."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A line through `points`; `line` is the path that SVG draws."""

    name: str
    points: tuple[Point, ...]
    line: str
    ticks: tuple[Tick, ...]
    last: str
    """The newest value."""


@dataclass(frozen=True, slots=True)
class Span:
    """A call on the clock of its session: it waited from `x`, and was sampled from `begin` until `end`."""

    x: float
    begin: float
    end: float


def chart(name: str, values: Sequence[tuple[int, float]]) -> Chart | None:
    """A chart of (place, value) pairs in order; None where there is no finite value."""
    finite = [(at, value) for at, value in values if math.isfinite(value)]
    if not finite:
        return None
    low, high = min(value for _, value in finite), max(value for _, value in finite)
    if low == high:
        room = abs(low) / 2 or 1.0
        low, high = low - room, high + room
    first, last = finite[0][0], finite[-1][0]

    def x(at: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((at - first) / (last - first) if last > first else 0.5)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))

    ticks = (high, (low + high) / 2, low)
    points = tuple(Point(round(x(at), 1), round(y(value), 1), at, value) for at, value in finite)
    line = "M" + " L".join(f"{point.x} {point.y}" for point in points)
    return Chart(
        name,
        points,
        line,
        ticks=tuple(Tick(round(y(value), 1), _label(value, high - low)) for value in ticks),
        last=_label(points[-1].value, high - low),
    )


def _label(value: float, spread: float) -> str:
    """With as many digits as it takes to tell the ticks of one axis apart."""
    if abs(value) >= 1000 and spread >= 10:
        return f"{value:,.0f}"
    digits = 3 if value == 0 else 3 + max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(spread)))
    return f"{value:.{min(digits, 8)}g}"


def spans(measured: Sequence[Timing], length: float) -> list[Span]:
    """The bars of calls in a session of `length` seconds."""
    scale = BAR / length if length > 0 else 0.0
    found = []
    for one in measured:
        end = one.start + (one.done if one.done is not None else one.first_token or 0.0)
        begin = one.start + one.first_token if one.first_token is not None else end
        found.append(Span(*(round(at * scale, 2) for at in (one.start, begin, end))))
    return found
