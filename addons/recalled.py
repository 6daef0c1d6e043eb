"""A reply that an earlier process committed but never delivered, to be told again to the call's retry.

The row is the truth: its sampled ids go through the reply parser as when they were sampled, so that the retry gets the
very same reply, under its first id, and nothing is sampled twice.
"""

from __future__ import annotations

from dataclasses import replace

from addons.backend import Model
from addons.completions import Sampled
from addons.conversation import Call
from addons.lineage import Trail
from addons.placement import nowhere
from addons.replies import ReplyParser
from addons.sessions import LiveSession
from addons.turn import LiveTurn
from replay.reader import Reader


def recalled(
    reader: Reader, turn_id: int, route: str, session: LiveSession, call: Call, digested: Trail, model: Model
) -> LiveTurn | None:
    """The finished turn, ready to be listened to; None where it has no reply to tell, or came by another URL."""
    row = reader.turn(turn_id)
    if row.status != "complete" or row.route != route or row.reply_id is None:
        return None
    prompt, (ids, logprobs) = reader.prompt_ids(row), reader.sampled(row)
    call_ids = iter([made["id"] for made in (reader.reply(row) or {}).get("tool_calls") or ()])
    tools = () if call.compaction else call.conversation.tools
    parser = ReplyParser(model.parser, prompt, tools, call.sampling.stop, lambda: next(call_ids))
    turn = LiveTurn(
        row.id, row.reply_id, row.received_at, session, call, model, row.sampling_sent, parser,
        replace(nowhere(digested), prompt=prompt), row.thread, row.untrainable,
    )  # fmt: skip
    cached = int((row.usage or {}).get("cached") or 0)
    finish = "length" if row.finish == "length" else "stop"
    turn.take(Sampled(tuple(ids), tuple(logprobs), finish, None, cached))
    turn.ending, turn.reply = True, turn.conclude()
    return turn
