"""Thought signatures: the opaque bytes that Gemini asks its callers to send back with a reply's parts.

Ours carry nothing (a turn is found by what was said) and only need to be told from another model's, whose
reasoning they hold and which we cannot read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

_MARK = b"\x12\x0dharnesstap\x01"
_DUMMIES = {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}
"""What Google documents for histories that have no signature."""


def thought_signature(reply_id: str) -> str:
    """The signature of one reply, base64."""
    return base64.b64encode(_MARK + hashlib.sha256(reply_id.encode()).digest()).decode()


def says_nothing(signature: str) -> bool:
    """Whether nothing is lost when `signature` is not read."""
    if signature in _DUMMIES:
        return True
    try:
        # Google's Python SDK writes bytes in the URL-safe alphabet, its JavaScript one as they came.
        return base64.b64decode(signature.replace("-", "+").replace("_", "/")).startswith(_MARK)
    except binascii.Error:
        return False
