"""Errors in the words of the Responses API: as an HTTP body, inside a stream, over a WebSocket."""

from __future__ import annotations

from typing import Any

from addons.dialects import chat
from addons.errors import BadRequest, CallError

_TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."


def error_body(error: CallError) -> dict[str, Any]:
    """The provider's error object: Chat's shape, naming this dialect's own fields."""
    body = chat.error_body(error)
    described = body["error"]
    if error.kind == "context_length":
        described["message"] = _TOO_LONG
    if described["param"] == "messages":
        described["param"] = "input"
    return body


def stream_error(error: CallError) -> dict[str, Any]:
    """The same inside a stream, where the code alone tells a harness whether to try again, and when."""
    described: dict[str, Any] = error_body(error)["error"]
    if isinstance(error, BadRequest):
        described["code"] = "invalid_prompt"
    elif error.status == 429:
        described["type"] = described["code"] = "rate_limit_exceeded"
        if error.retry_after is not None:
            described["message"] += f" Please try again in {error.retry_after}s."
    elif error.kind != "context_length" and error.status != 402:
        described["code"] = "server_error"
    return described


def socket_error(error: CallError) -> dict[str, Any]:
    """The same as a WebSocket message, with the headers that an HTTP reply would have had."""
    message = {"type": "error", "status": error.status, **error_body(error)}
    if error.retry_after is not None:
        message["headers"] = {"retry-after": str(error.retry_after)}
    return message


def previous_response_not_found(response_id: str) -> BadRequest:
    """The provider's 400 for a `previous_response_id` that is not stored."""
    return BadRequest(
        f"Previous response with id '{response_id}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )
