"""Token ids to text, one id at a time, exactly: what was said before never changes.

A byte-level vocabulary spells bytes, so a token can end inside a character. The bytes are therefore decoded
by Python's incremental UTF-8 decoder, which holds an unfinished character back. (`tokenizers.DecodeStream`
decodes a growing window again and again while the end is unfinished, and raises on byte sequences that never
become a character, which a model in training does sample.)
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from addons.model import ModelError, ModelFiles

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_LONGEST_CHARACTER = 4  # bytes, and so at most that many ids


class Vocabulary:
    """The bytes of every token. Raises ModelError for a tokenizer whose tokens are not spelt as bytes or
    text.
    """

    def __init__(self, model: ModelFiles) -> None:
        tokenizer: Tokenizer = model.tokenizer.backend_tokenizer
        decoder = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else {}
        kinds = [part["type"] for part in decoder.get("decoders", [decoder]) if part]
        self._byte_level = "ByteLevel" in kinds
        self._space = _space(decoder)
        self._tokenizer = tokenizer
        self._added = {number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()}
        self._known: dict[int, bytes] = {}
        unknown = set(kinds) - {"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
        if unknown or not kinds:
            raise ModelError(f"{model.name}: tokenizer.json has a decoder of kind {kinds}, which is not supported")

    def spelling(self, number: int) -> bytes:
        """The UTF-8 bytes of one token; empty for an id that the tokenizer does not know (padding of the
        vocabulary).
        """
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = self._spell(number)
        return known

    def _spell(self, number: int) -> bytes:
        if number in self._added:
            return self._added[number].encode()
        token = self._tokenizer.id_to_token(number)
        if token is None:
            return b""
        if self._byte_level:
            return bytes(_BYTE_OF[character] for character in token)
        byte = _BYTE.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.replace(self._space, " ").encode()


class Detokeniser:
    """Text of sampled ids as they come. `prompt` may end inside a character: that one is not echoed."""

    def __init__(self, vocabulary: Vocabulary, prompt: Sequence[int] = ()) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for number in prompt[-_LONGEST_CHARACTER:]:
            self._decoder.decode(vocabulary.spelling(number))
        self._skip = 1 if self._decoder.getstate()[0] else 0

    def feed(self, number: int) -> str:
        """The text that one more id completes; "" while a character is unfinished.

        What is unfinished when the ids end is never said: there is no character to say.
        """
        text = self._decoder.decode(self._vocabulary.spelling(number))
        if self._skip and text:
            text, self._skip = text[1:], 0
        return text


def _space(decoder: dict[str, Any]) -> str:
    """The character that stands for a space in a vocabulary that is not byte-level."""
    for part in decoder.get("decoders", [decoder]):
        if part and part["type"] == "Metaspace":
            return str(part["replacement"])
        if part and part["type"] == "Replace" and part["content"] == " ":
            return str(part["pattern"]["String"])
    return "▁"


def _alphabet() -> dict[str, int]:
    """GPT-2's stand-ins for the 256 bytes: printable ones are themselves, the others follow from 256 on."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _alphabet()
