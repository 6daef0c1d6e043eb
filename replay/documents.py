"""Sessions and turns as JSON documents, for scripts (`--json`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replay.groups import Overview
from replay.reader import Reader
from replay.schema import Turn

_TURN = (
    "id", "purpose", "status", "dialect", "route", "model", "finish", "stop_sequence", "usage", "sampling_asked",
    "sampling_sent", "ignored_fields", "drift_reason", "drift_detail", "rendering", "thread", "untrainable", "error",
    "template_hash", "weight_version", "weight_version_end", "weight_versions", "prompt_length", "suffix_length",
    "images", "n_sampled", "body_digest", "received_at", "first_token_at", "done_at", "delivered_at",
)  # fmt: skip


def session_document(overview: Overview) -> dict[str, Any]:
    """A session and the counts of its turns and tokens."""
    session = overview.session
    names = ("id", "name", "harness", "harness_version", "task", "group", "status", "reward", "reward_parts")
    document = {name: getattr(session, name) for name in names}
    document |= {"metadata": session.meta, "created_at": session.created_at, "scored_at": session.scored_at}
    numbers = ("turns", "sequences", "prompt_tokens", "new_tokens", "sampled_tokens")
    return document | {"counts": {name: getattr(overview, name) for name in numbers}}


def turn_documents(
    reader: Reader, turns: Sequence[Turn], wanted: Sequence[Turn], *, messages: bool, tokens: bool, request: bool
) -> list[dict[str, Any]]:
    """The `wanted` ones of a session's `turns`. `number`, `parent` and `retry_of` count turns from 1.

    With `messages`: the new ones and the reply. With `tokens`: prompt_ids (whole), sampled and logprobs.
    """
    numbers = {turn.id: number for number, turn in enumerate(turns, 1)}
    documents = []
    for turn in wanted:
        document: dict[str, Any] = {
            "number": numbers[turn.id],
            "parent": None if turn.parent_id is None else numbers[turn.parent_id],
            "retry_of": None if turn.retry_of is None else numbers.get(turn.retry_of),
            **{name: getattr(turn, name) for name in _TURN},
        }
        if messages:
            document |= {"new_messages": reader.new_messages(turn), "reply": reader.reply(turn)}
        if tokens:
            sampled, logprobs = reader.sampled(turn)
            document |= {"prompt_ids": reader.prompt_ids(turn), "sampled": sampled, "logprobs": logprobs}
        if request:
            document["request"] = reader.request(turn)
        documents.append(document)
    return documents
