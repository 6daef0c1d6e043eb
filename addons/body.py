"""A request body: bytes to JSON, with nothing lost that a harness may legally send."""

from __future__ import annotations

import re
from typing import Any

from addons.errors import BadRequest
from replay import codec

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(raw: bytes) -> tuple[Any, Any]:
    """Parse a body; returns the value as sent, for the record, and the value to read.

    They are one object but for lone surrogates: JavaScript harnesses cut strings inside a character and send the
    half, which is legal JSON but no text that a tokenizer takes. In the second value it is U+FFFD.

    Raises:
        BadRequest: not JSON, and the message says where; or nested too deeply.
    """
    try:
        sent = codec.loads(raw)
    except ValueError as error:
        raise BadRequest(f"We could not parse the JSON body of your request: {error}", code="invalid_json") from error
    if b"\\u" not in raw or not _SURROGATE.search(raw):  # the first is many times faster, in megabytes of images
        return sent, sent
    try:
        readable = mended(sent)
        return sent, sent if readable == sent else readable
    except RecursionError as error:
        raise BadRequest("The JSON body of your request is nested too deeply.", code="invalid_json") from error


def mended(value: Any) -> Any:
    """A JSON value with U+FFFD in place of lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, dict):
        return {mended(key): mended(item) for key, item in value.items()}
    return value
