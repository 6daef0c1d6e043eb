"""What a turn is for. Training takes `main` unless told otherwise, so a side call must not pass for one."""

from __future__ import annotations

from addons.conversation import Call
from replay.records import DriftReason, Purpose

_PROBE_TOKENS = 1


def purpose_of(call: Call, drift: DriftReason | None, parent: Purpose | None, *, session_has_tools: bool) -> Purpose:
    """Tell a turn's purpose.

    Args:
        call: the call.
        drift: why it opened a root, None for a continued turn.
        parent: the purpose of the turn it continues.
        session_has_tools: an earlier root of the session offered tools.
    """
    if parent is not None:
        return parent
    if call.sampling.max_tokens is not None and call.sampling.max_tokens <= _PROBE_TOKENS:
        return "probe"
    if call.constraint is not None and not call.conversation.tools:
        return "classifier"
    if drift == "subagent" and session_has_tools:
        return "subagent" if call.conversation.tools else "title"
    return "main"
