"""Message threads: a Messages call that continues an earlier reply by its id and brings only what is new.

`thread: {"type": "create"}` asks the provider to keep a conversation under the id of its reply; later calls say
`{"type": "continue", "previous_message_id": ...}` and leave system prompt, tools and all earlier messages out. The
provider forgets a thread after some minutes and lets each reply be continued once; ours come from the record, so they
never expire, and a reply that is continued twice is a fork. A harness that is told `thread_not_found` sends everything
again as a new thread.
"""

from __future__ import annotations

from typing import Any

from addons.conversation import Reply
from addons.dialects.continuing import LookUp, nothing_stored
from addons.dialects.fields import Fields
from addons.dialects.messages_errors import ThreadMismatch, ThreadNotFound, invalid, refuse
from addons.dialects.messages_stream import content_of

_KEPT = ("system", "tools")
"""What a thread keeps beside its messages."""


def previous(body: Any) -> str | None:
    """The id of the reply that a body continues."""
    thread = body.get("thread") if isinstance(body, dict) else None
    if not isinstance(thread, dict) or thread.get("type") != "continue":
        return None
    named = thread.get("previous_message_id")
    return named if isinstance(named, str) else None


def whole(body: Any, stored: LookUp = nothing_stored) -> Any:
    """The body as it would be without a thread, with all that it continues.

    Raises:
        BadRequest: `thread` is malformed, or a kept field is given again with another value.
        ThreadNotFound: the caller has no such reply.
    """
    thread = Fields(body).object("thread")
    if thread is None:
        return body
    named = _named(thread)
    own = {key: value for key, value in body.items() if key != "thread"}
    if named is None:
        return own
    kept = stored(named)
    if kept is None:
        raise ThreadNotFound(named)
    if changed := [key for key in _KEPT if own.get(key) is not None and own[key] != kept.get(key)]:
        raise ThreadMismatch(changed)
    messages = own.get("messages")
    if not isinstance(messages, list):
        return own  # what is wrong with it is told where messages are read
    return {**own, **{key: kept[key] for key in _KEPT if key in kept}, "messages": [*kept["messages"], *messages]}


def after(stored: LookUp, body: dict[str, Any], reply_id: str, reply: Reply | None) -> dict[str, Any]:
    """What a thread keeps after a reply: system prompt, tools and messages, the reply's own last."""
    kept = whole(body, stored)
    said = [] if reply is None else [{"role": "assistant", "content": content_of(reply)}]
    return {**{key: kept[key] for key in _KEPT if key in kept}, "messages": [*kept["messages"], *said]}


def _named(thread: Fields) -> str | None:
    """The reply to continue; None for a new thread."""
    kind = thread.need("type", thread.text("type"))
    if kind not in ("create", "continue"):
        invalid(thread, "type", f"Input should be 'create' or 'continue', not {kind!r}")
    named = None
    if kind == "continue":
        named = thread.need("previous_message_id", thread.text("previous_message_id"))
    thread.close()
    for path in thread.ignored:
        refuse(path, f"{path}: Extra inputs are not permitted")
    return named
