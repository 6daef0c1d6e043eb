"""Google's error object (google.rpc.Status), and its own words for what goes wrong."""

from __future__ import annotations

from typing import Any

from addons.dialects.gemini_fields import proto_path
from addons.errors import CallError, ContextLengthExceeded

_STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 402: "FAILED_PRECONDITION", 403: "PERMISSION_DENIED",
    404: "NOT_FOUND", 407: "UNAUTHENTICATED",
    408: "DEADLINE_EXCEEDED", 409: "ABORTED", 413: "INVALID_ARGUMENT", 422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED", 502: "UNAVAILABLE",
    503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip


class CacheNotFound(CallError):
    """The call names cached contents. Nothing is cached here; what Google answers for an unknown name."""

    status = 403
    kind = "not_found"

    def __init__(self, name: str) -> None:
        message = "CachedContent not found (or permission denied)"
        super().__init__(message, param="cachedContent", code=name)


def error_body(error: CallError) -> dict[str, Any]:
    """The provider's error object."""
    body: dict[str, Any] = {"code": error.status, "message": _message(error), "status": _status(error.status)}
    if details := _details(error):
        body["details"] = details
    return {"error": body}


def _message(error: CallError) -> str:
    if isinstance(error, ContextLengthExceeded):
        return (
            f"The input token count ({error.prompt_tokens}) exceeds the maximum number of tokens allowed "
            f"({error.window})."
        )
    return error.message


def _status(status: int) -> str:
    return _STATUS.get(status) or ("INTERNAL" if status >= 500 else "FAILED_PRECONDITION")


def _details(error: CallError) -> list[dict[str, Any]]:
    details: list[dict[str, Any]] = []
    if error.code == "invalid_type" and error.param is not None:
        violations = [{"field": proto_path(error.param), "description": error.message}]
        details.append({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations})
    if error.retry_after is not None:
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{error.retry_after}s"}
        details.append(retry)
    return details
