"""The first half of a turn's row: what is known of a call before the engine is asked."""

from __future__ import annotations

from typing import Any

from addons import media
from addons.backend import Model
from addons.neutral import message_json, tool_json
from addons.placement import Placement
from addons.request import Request
from replay.records import NewTurn


def new_turn(
    request: Request, session_id: int, placement: Placement, model: Model | None, params: dict[str, Any],
    version: str | None, overridden: tuple[str, ...], retry_of: int | None, replays: int | None,
) -> NewTurn:  # fmt: skip
    """The row of a call that was placed.

    `model` is None for one that failed before it was known. `params` are the sampling parameters as sent, `overridden`
    those asked for that were not, `version` is the weights', `retry_of` and `replays` are ids of turns.
    """
    start = len(placement.prompt) - len(placement.suffix)
    placed = [image for image in placement.placed if image.offset >= start]
    ignored = media.ignored_fields(request.call, sees=model is not None and model.images is not None)
    return NewTurn(
        session_id=session_id,
        parent_id=None if placement.parent is None else placement.parent.turn_id,
        purpose=placement.purpose,
        dialect=request.dialect.name,
        route=request.route,
        model=request.call.model,
        prompt_suffix=placement.suffix,
        prompt_length=len(placement.prompt),
        sampling_asked=request.call.sampling.asked(),
        sampling_sent=params,
        images=tuple(image.json() for image in placed),
        files=media.files(placement.new, {image.sha256 for image in placed}),
        ignored_fields=tuple(sorted({*ignored, *overridden})),
        drift_reason=placement.drift,
        drift_detail=placement.detail,
        rendering=placement.rendering,
        thread=request.caller.thread,
        template_hash=None if model is None else model.files.template_hash,
        weight_version=version,
        received_at=request.received_at,
        retry_of=retry_of,
        body_digest=request.digest,
        request=request.body,
        messages=tuple(message_json(m) for m in placement.new),
        tools=tuple(tool_json(t) for t in request.call.conversation.tools),
        opening=placement.trail.opening if placement.parent is None else None,
        reply_id=request.reply_id,
        replays=replays,
    )
