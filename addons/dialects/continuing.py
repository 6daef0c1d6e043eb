"""How a call continues a reply that was left with its provider: by the reply's id, sending only what is new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from addons.conversation import Reply

State = Any
"""What stands after a reply, in the form that its dialect keeps it in: the dialect's own business."""

LookUp = Callable[[str], State | None]
"""The state after the reply of this id; None where the caller's session has no such reply."""


def nothing_stored(_: str) -> None:
    """The look-up of a caller that left nothing."""


@dataclass(frozen=True, slots=True)
class Continuing:
    """A dialect's way of continuing.

    - `previous`: the id of the reply that a request body continues, None for one that brings its whole conversation.
    - `after`: the state after a reply, made of what its request can look up, the request's body, the reply's id, and
      the reply itself (None for a call that sampled nothing). Raises what the dialect's `read` raises.
    """

    previous: Callable[[Any], str | None]
    after: Callable[[LookUp, dict[str, Any], str, Reply | None], State]
