"""gpt-oss: the messages after a turn in Harmony's form, by `renderers` over OpenAI's own encoder.

The model's chat template is an imitation that writes tool results as JSON strings and names every one of them after the
first call. Harmony, in which the model was trained and vLLM's chat endpoint serves it, does neither.

OpenAI's encoder takes its vocabulary from a file, which it would download. It is the model's own, in another spelling:
so it is written from the model's tokenizer, and used only where it is the same to the byte.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from addons.habits import Rendered
from addons.model import ModelFiles

logger = logging.getLogger(__name__)

_O200K = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""sha256 of o200k_base.tiktoken, the vocabulary under Harmony's special tokens."""
_O200K_SIZE = 199_998
_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
_TOKENS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")


class Harmony:
    """Writes what follows a turn of gpt-oss."""

    def __init__(self, renderer: Any, model: ModelFiles) -> None:
        self._renderer = renderer
        tokenizer = model.tokenizer.backend_tokenizer
        self._start, self._channel, _, self.end, self._return, self._call = map(tokenizer.token_to_id, _TOKENS)

    @classmethod
    def of(cls, model: ModelFiles) -> Harmony | None:
        """For a model whose template and vocabulary are gpt-oss's; None for any other."""
        if not all(token in model.template for token in _TOKENS):
            return None
        vocabulary = _o200k(model)
        if vocabulary is None:
            logger.warning(
                "%s: a Harmony template over a vocabulary that is not o200k; tool results are written as the template "
                "does it", model.name,
            )  # fmt: skip
            return None
        from renderers import create_renderer
        from renderers.configs import GptOssRendererConfig

        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "o200k_base.tiktoken").write_bytes(vocabulary)
            before = os.environ.get(_VARIABLE)
            os.environ[_VARIABLE] = folder
            try:
                # All reasoning stays: whether to keep it is decided elsewhere.
                renderer = create_renderer(model.tokenizer, GptOssRendererConfig(auto_drop_analysis=False))
            finally:
                os.environ.pop(_VARIABLE)
                if before is not None:
                    os.environ[_VARIABLE] = before
        return cls(renderer, model)

    def after_turn(self, new: Sequence[Rendered]) -> list[int] | None:
        """Ids of the messages after a turn, and of the generation prompt; None where it has no form for one.

        Harmony writes text in messages as text, whatever special tokens it spells.
        """
        ended = [self._start, self._return]  # any turn will do: it is not looked at
        bridged = self._renderer.bridge_to_next_turn(ended[:1], ended[1:], list(new))
        if bridged is None:
            return None
        ids: list[int] = bridged.token_ids[len(ended) :]
        # Up to `<|start|>assistant`: which channel it speaks on is the model's to say.
        return ids[: len(ids) - ids[::-1].index(self._channel) - 1]

    def ends_turn(self, last: int | None) -> bool:
        """Whether a sampled id ends a message. In mid-conversation `<|return|>` is as good as `<|end|>`."""
        return last in (self.end, self._return, self._call)


def _o200k(model: ModelFiles) -> bytes | None:
    """The vocabulary in tiktoken's form, a line of base64 and a rank for each token; None if it is another."""
    state = json.loads(model.tokenizer.backend_tokenizer.to_str())["model"]
    if state["type"] != "BPE":
        return None
    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    base = sorted((rank, text) for text, rank in state["vocab"].items() if rank < _O200K_SIZE)
    try:
        spelt = [(bytes(byte_of[character] for character in text), rank) for rank, text in base]
    except KeyError:
        return None
    written = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in spelt)
    return written if hashlib.sha256(written).hexdigest() == _O200K else None
