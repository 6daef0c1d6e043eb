"""The pages that compare: groups, the sessions of one, and two sessions call by call."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replay import differing
from replay.groups import Overview
from replay.view import queries
from replay.view.asking import Answer, Ask, Page
from replay.view.session import gist

PAGE = 50
MEMBERS = 200
"""Sessions of a group that are compared: the newest."""
_MOST_PAIRS = 2000


@dataclass(frozen=True, slots=True)
class Member:
    """A session of a group."""

    overview: Overview
    credit: queries.Credit | None
    seconds: float | None
    """From its first call to the end of its last."""
    ended: str
    """What it said last, in its main conversation."""


def groups(ask: Ask) -> Answer:
    """A table of the groups."""
    found = queries.groups(ask.reader.store.engine, before=ask.whole("before"), limit=PAGE + 1)
    older = f"/groups?before={found[PAGE - 1].last}" if len(found) > PAGE else None
    return Page("groups.html", {"rows": found[:PAGE], "older": older})


def group(ask: Ask) -> Answer:
    """The sessions of one group, the best first: rewards and their parts, length, time, advantage."""
    name = ask.text("name")
    found = ask.reader.sessions(group=name, limit=MEMBERS + 1) if name is not None else []
    sessions = found[:MEMBERS]
    if not sessions:
        raise LookupError(f"no session is in group {name!r}")
    sessions.sort(key=lambda one: (one.reward is None, -(one.reward or 0.0), one.id))
    credit = queries.credits_of(ask.reader.store.engine, sessions)
    members = []
    for overview in ask.reader.overview(sessions):
        turns = ask.reader.turns(overview.session)
        ends = [turn.done_at for turn in turns if turn.done_at is not None]
        main = [turn for turn in turns if turn.purpose == "main" and turn.reply is not None]
        reply = ask.reader.reply(main[-1]) if main else None
        members.append(
            Member(
                overview,
                credit.get(overview.session.id),
                max(ends) - turns[0].received_at if ends else None,
                _said(reply or {}),
            )
        )
    judged = [one.reward for one in sessions if one.reward is not None]
    parts = list(dict.fromkeys(part for one in sessions for part in one.reward_parts or ()))
    values = {
        "name": name, "members": members, "parts_of_reward": parts, "left": len(found) > MEMBERS,
        "judged": len(judged), "first": members[0].overview.session,
        "mean": statistics.fmean(judged) if judged else None,
        "spread": statistics.pstdev(judged) if judged else None,
        "widest": max((abs(one) for one in judged), default=0.0) or 1.0,
    }  # fmt: skip
    return Page("group.html", values)


def diff(ask: Ask) -> Answer:
    """Two sessions, call by call, and the first difference in words."""
    one, other = (ask.reader.session(ask.text(side) or "") for side in ("a", "b"))
    pairs = differing.compare(ask.reader, one, ask.reader, other)
    first = next((pair for pair in pairs if pair.differs), None)
    values = {
        "one": one, "other": other, "pairs": pairs[:_MOST_PAIRS], "left": max(len(pairs) - _MOST_PAIRS, 0),
        "first": first, "differences": sum(pair.differs for pair in pairs), "exact": differing.EXACT,
    }  # fmt: skip
    return Page("diff.html", values)


def _said(reply: Mapping[str, Any]) -> str:
    calls = " ".join(f"→ {call['name']} {call['arguments']}" for call in reply.get("tool_calls") or ())
    return gist(f"{reply.get('content') or ''} {calls}")
