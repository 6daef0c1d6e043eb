"""What decides a model's token ids, as one hash: two models with the same one may read each other's ids."""

from __future__ import annotations

import hashlib


def template_hash(template: str, tokenizer_json: bytes) -> str:
    """`Turn.template_hash`: sha256, 64 hex digits, over a template's text and the digest of tokenizer.json."""
    digest = hashlib.sha256(tokenizer_json).hexdigest()
    return hashlib.sha256(f"{template}\0{digest}".encode()).hexdigest()
