"""What a turn is for. Training takes `main` unless told otherwise, so a side call must not pass for one.

A program that the agent started (a script it wrote, curl, another harness) inherits the session with the environment.
That it is another goes before all: what it asks for is its own affair. Then what the harness itself says of a call
(`Caller.kind`) goes before all guesses. In this order:

agent_authored  continues nothing, and comes from another program than the one that runs the session
compaction      asks for a summary of the conversation; or the harness asked for one by the provider's own means
the parent's    of a turn that continues one; of what goes on after a summary, `main`
probe           wants one token at most: a quota or connection check
classifier      no tools, and a schema for the answer
agent_authored  as far as can be told, the agent's program: another version, another API key for the same host, no
                name at all; with other instructions or tools
title           no tools, and asks for a title, a commit message or the like; or the session's agent has tools
main            the session's first conversation, and any other with the same instructions and tools
subagent        every other conversation

A call without tools may come before its session's first with tools, and only then be told to be a side call: see
`LiveSession.toolless`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from addons.caller import Caller
from addons.conversation import Call
from addons.lineage import Trail
from replay.records import Purpose

_PROBE_TOKENS = 1
_ASKED_IN = 600
"""Characters, from the beginning, in which a text says what it asks for."""
_IT = (
    r"(?:(?:the|this|that|our|your|a|an|entire|full|whole|internal|current|provided|previous|above|chat|conversation)\s+"
    r"(?:\w+\s+)?)(?:conversation|history|context|session|chat|transcript|dialogue)s?\b(?!\s+of\b)"
)
_SUMMARY = re.compile(
    rf"\b(?:summari[sz]e[sd]?|summari[sz]ing|compact|compress|condense)s?\s[^.?!]{{0,60}}{_IT}|"
    rf"{_IT}[^.?!]{{0,100}}\b(?:summary|summari[sz]ation|compaction|compression)\b|"
    rf"\b(?:summary|(?:state_)?snapshot|handoff)\b[^.?!]{{0,80}}(?:{_IT}|\b(?:continue|resume)\b)|"
    rf"\b(?:context|conversation|history) (?:summari[sz]|compact|compress)|\bcontinuing our conversation\b",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"\b(?:generates?|writes?|creates?|gives?|suggests?|produces?|outputs?|come up with|propose|you are|your task)\b"
    r"[^?!]{0,120}\b(?:titles?|headline|commit messages?|branch names?|slug|topic|one-line summary|short name)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a session when a call of it is placed."""

    begun: bool
    """A conversation of its agent has begun."""
    same_head: bool
    """The call's instructions and tools are those of such a conversation."""
    offers_tools: bool
    """Some conversation of it has tools."""
    agent: Caller | None
    """Who called first for its agent: the program that runs the session."""


def purpose_of(
    call: Call, trail: Trail, caller: Caller, parent: Purpose | None, known: Known, *, continues: bool = False
) -> Purpose:
    """Tell a turn's purpose; `parent` is that of the turn it `continues`, or would continue, if any."""
    tools = bool(call.conversation.tools)
    if not continues and _another_program(caller, known.agent):
        return "agent_authored"
    if caller.kind == "compaction" or call.compaction:
        return "compaction"
    if call.sampling.max_tokens is not None and call.sampling.max_tokens <= _PROBE_TOKENS:
        return "probe"
    if caller.kind == "side":
        return "classifier" if call.constraint is not None else "title"
    if caller.kind is not None:
        return caller.kind
    if asks_for_summary(trail):
        return "compaction"
    if parent is not None:
        return "main" if parent == "compaction" else parent
    if call.constraint is not None and not tools:
        return "classifier"
    if not known.same_head and _unlike(caller, known.agent):
        return "agent_authored"
    if not tools and (known.offers_tools or _asks_for_title(trail)):
        return "title"
    return "main" if known.same_head or not known.begun else "subagent"


def _another_program(caller: Caller, agent: Caller | None) -> bool:
    """Whether a call comes from another program than the agent's, by what the two call themselves."""
    return agent is not None and None not in (caller.harness, agent.harness) and caller.harness != agent.harness


def _unlike(caller: Caller, agent: Caller | None) -> bool:
    """Whether a call that may be the agent's comes from a program that is not quite the agent's."""
    if agent is None:
        return False
    other_key = caller.host == agent.host and caller.credential != agent.credential
    return other_key or (caller.harness, caller.harness_version) != (agent.harness, agent.harness_version)


def asks_for_summary(trail: Trail) -> bool:
    """Whether the call asks for a summary of the conversation, which it holds or quotes."""
    messages, told = trail.conversation.messages, _instructions(trail)
    asked = next((m.content for m in reversed(messages) if m.role == "user"), "")
    if any(m.role == "assistant" for m in messages) and _SUMMARY.search(asked[:_ASKED_IN]):
        return True
    return not trail.conversation.tools and bool(_SUMMARY.search(told))


def _asks_for_title(trail: Trail) -> bool:
    """Whether a call without tools asks for a title: its instructions do, or without any the first message."""
    messages, told = trail.conversation.messages, _instructions(trail)
    once = not any(m.role == "assistant" for m in messages)
    return once and bool(_TITLE.search(told or messages[0].content[:_ASKED_IN]))


def _instructions(trail: Trail) -> str:
    return "\n".join(m.content[:_ASKED_IN] for m in trail.conversation.messages[: trail.instructions])
