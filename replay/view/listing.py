"""The page of sessions: filtered, newest first, page by page."""

from __future__ import annotations

from typing import Any, get_args
from urllib.parse import quote, urlencode

from replay.records import Purpose, SessionStatus
from replay.view import queries
from replay.view.asking import Answer, Ask, Moved, Page

PAGE = 50


def sessions(ask: Ask) -> Answer:
    """A table of the sessions that match the filters."""
    known, error, found = {}, None, []
    try:
        known = _filters(ask)
        found = ask.reader.sessions(**known, before=ask.whole("before"), limit=PAGE + 1)
    except ValueError as words:
        error = str(words)
    older = None
    if len(found) > PAGE:
        found = found[:PAGE]
        kept = {name: value for name, value in ask.query.items() if value and name != "before"}
        older = "/sessions?" + urlencode({**kept, "before": found[-1].id})
    return Page(
        "sessions.html",
        {
            "rows": ask.reader.overview(found), "older": older, "error": error,
            "filters": {name: ask.query.get(name, "") for name in _NAMES},
            "filtered": any(value is not None for value in known.values()), "beginning": ask.text("before") is None,
            "harnesses": queries.harnesses(ask.reader.store.engine),
            "statuses": get_args(SessionStatus), "purposes": get_args(Purpose),
        },
    )  # fmt: skip


def named(ask: Ask) -> Answer:
    """To the session of that name."""
    return Moved(f"/sessions/{ask.reader.session(ask.query.get('session', '')).id}")


def by_turn(ask: Ask) -> Answer:
    """To the turn of that id, which rows of batches name."""
    turn = ask.reader.turn(ask.number("turn"))
    turns = ask.reader.turns(ask.reader.session(ask.reader.session_name(turn.session_id)))
    number = next(at for at, one in enumerate(turns, 1) if one.id == turn.id)
    return Moved(f"/sessions/{turn.session_id}/turns/{number}")


def group_address(name: str) -> str:
    """Of the page that compares a group's sessions."""
    return f"/group?name={quote(name, safe='')}"


_NAMES = (
    "text", "harness", "harness_version", "task", "group", "status", "purpose", "weight_version", "reward_min",
    "reward_max",
)  # fmt: skip


def _filters(ask: Ask) -> dict[str, Any]:
    words = ("text", "harness", "harness_version", "task", "group", "weight_version")
    return {
        **{name: ask.text(name) for name in words},
        "status": ask.one_of("status", get_args(SessionStatus)),
        "purpose": ask.one_of("purpose", get_args(Purpose)),
        "reward_min": ask.real("reward_min"),
        "reward_max": ask.real("reward_max"),
    }
