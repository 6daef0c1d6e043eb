"""Errors of Anthropic Messages: the provider's object, types and words.

Harnesses match on the words. Claude Code compacts when it reads "prompt is too long: N tokens > M maximum", and
tries again without a field that it is told is an extra input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

from addons.dialects.fields import Fields
from addons.errors import BadRequest, CallError, ContextLengthExceeded, NotFound


class ThreadNotFound(NotFound):
    """No such reply to continue: the harness sends its whole conversation, as a new thread."""

    def __init__(self, reply_id: str) -> None:
        super().__init__(
            f"No usable thread state was found for previous_message_id '{reply_id}'. Replay the full conversation with "
            'thread: {"type": "create"} to start a new thread.',
            code="thread_not_found",
        )


class ThreadMismatch(BadRequest):
    """Fields that a thread keeps were given again, with other values."""

    def __init__(self, fields: Sequence[str]) -> None:
        super().__init__(
            f"These fields differ from the values stored with the thread: {', '.join(fields)}. Leave them out, or "
            'replay the full conversation with thread: {"type": "create"} to change them.',
            code="thread_fingerprint_mismatch",
        )


_TYPES = {
    401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
    407: "authentication_error", 409: "conflict_error", 413: "request_too_large", 429: "rate_limit_error",
    503: "overloaded_error", 504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
"""By HTTP status. The provider's overload is 529, and at times 503; clients try both again, so ours stays 503."""

_EXPECTED = re.compile(r"expected (an? \w+(?: or an? [\w ]+)?), but got")
_VALID = {
    "a string": "a valid string", "an object": "a valid dictionary", "an array": "a valid list",
    "a boolean": "a valid boolean", "an integer": "a valid integer", "a number": "a valid number",
}  # fmt: skip


def error_body(error: CallError) -> dict[str, Any]:
    """The provider's error object."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    described: dict[str, Any] = {"type": kind, "message": _message(error)}
    if isinstance(error, ThreadNotFound | ThreadMismatch):
        described["details"] = {"error_code": error.code}  # by which harnesses know what to send next
    return {"type": "error", "error": described}


def refuse(param: str, message: str) -> NoReturn:
    """Raise the caller's 400 for `param`, in the provider's words as they are."""
    raise BadRequest(message, param=param)


def invalid(f: Fields, key: str, reason: str) -> NoReturn:
    """Raise the caller's 400 for `key` of `f`: the provider writes `messages.0.role: reason`."""
    refuse(f.at(key), f"{dotted(f.at(key))}: {reason}")


def dotted(path: str) -> str:
    """A path such as `messages[0].role` in the provider's spelling."""
    return path.replace("[", ".").replace("]", "")


def in_provider_words(error: BadRequest) -> BadRequest:
    """An error of :class:`Fields` as the provider would put it; one that is already is returned as it is."""
    if error.param is None or error.code is None:
        return error
    return BadRequest(f"{dotted(error.param)}: {_reason(error)}", param=error.param)


def _reason(error: BadRequest) -> str:
    if error.code == "missing_required_parameter":
        return "Field required"
    if error.code == "invalid_type" and (expected := _EXPECTED.search(error.message)):
        return f"Input should be {_VALID.get(expected[1], expected[1])}"
    return error.message.partition(f"'{error.param}': ")[2] or error.message


def _message(error: CallError) -> str:
    if isinstance(error, ContextLengthExceeded):
        # A prompt that fills the window to the last token has no room for a reply either.
        maximum = min(error.window, error.prompt_tokens - 1)
        return f"prompt is too long: {error.prompt_tokens} tokens > {maximum} maximum"
    return error.message
