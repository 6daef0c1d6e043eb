"""Ids in the providers' shapes."""

from __future__ import annotations

import secrets
import string

_ALPHABET = string.ascii_letters + string.digits


def new_id(prefix: str, length: int = 24) -> str:
    """A fresh id such as `call_x7...`: `length` random letters and digits after the provider's prefix."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(length))
