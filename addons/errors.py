"""What can go wrong in a call, before a dialect gives it its provider's own words."""

from __future__ import annotations


class CallError(Exception):
    """A call that ends in an error reply. `status` is the HTTP status every provider uses for this kind.

    `kind` is one of the closed list that each dialect maps to its own error type:
    invalid_request, context_length, not_found, unsupported, unavailable, engine.
    """

    status = 500
    kind = "engine"
    retry_after: int | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class BadRequest(CallError):
    """The harness sent something that the provider would refuse as well; `param` names the field."""

    status = 400
    kind = "invalid_request"


class PayloadTooLarge(CallError):
    """The request body is larger than any provider takes."""

    status = 413
    kind = "invalid_request"


class TooManyRequests(CallError):
    """More calls at once than are kept waiting."""

    status = 429
    kind = "invalid_request"
    retry_after = 5


class ContextLengthExceeded(CallError):
    """The prompt alone does not fit the model's window: harnesses compact when they read this."""

    status = 400
    kind = "context_length"

    def __init__(self, prompt_tokens: int, window: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.window = window
        super().__init__(
            f"This model's maximum context length is {window} tokens. However, your messages resulted in "
            f"{prompt_tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )


class NotFound(CallError):
    """No such route at this provider."""

    status = 404
    kind = "not_found"


class Unsupported(CallError):
    """A route or a dialect that this version does not serve."""

    status = 501
    kind = "unsupported"


class EngineUnavailable(CallError):
    """vLLM is down, still loading, or went away in mid-reply."""

    status = 503
    kind = "unavailable"
    retry_after = 5


class EngineRefused(CallError):
    """vLLM answered with an error of its own; `status` is vLLM's."""

    kind = "engine"

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Fault(CallError):
    """A fault of ours: logged with its traceback, and told to the harness so that it neither waits nor believes."""

    def __init__(self, what: str) -> None:
        super().__init__(f"Internal error of the proxy: {what}")


class EngineMismatch(CallError):
    """vLLM runs, but not in a way that keeps our promises: the message says what to change."""

    status = 503
    kind = "unavailable"
    retry_after = 30
