"""Text to token ids, with data kept apart from structure (promise T4).

Theory of operation. A chat template writes *structure*: special tokens such as `<|im_end|>`, and markup
tokens such as `<tool_call>`. The same characters inside a message are *data* and must not become those ids,
or anybody who gets text in front of the model could forge a turn. So before rendering, each occurrence of a
structural token's text in the data is replaced by a placeholder of letters and digits (`Escape`). After
rendering, every structural token still in the text is the template's own by construction. `Encoder.encode`
splits there, puts the data's characters back, and encodes the runs in between with a copy of the tokenizer
that does not know the structural tokens.

Nearly always nothing had to be replaced; then the text is encoded in one piece, and the structural ids that
come out are checked against those the template wrote.
"""

from __future__ import annotations

import json
import re
import secrets
from itertools import pairwise
from typing import Any

from tokenizers import AddedToken, Tokenizer

from addons.model import ModelFiles
from addons.placeholders import put, sentinels

_MARKUP = re.compile(r"<\S+>|\[\S+\]|\|\S+\|")


class Escape:
    """Placeholders for structural token text in the data of one rendering."""

    def __init__(self, structural: re.Pattern[str], texts: tuple[str, ...]) -> None:
        self._structural = structural
        self._texts = texts
        self._number = {text: number for number, text in enumerate(texts)}
        self._nonce = secrets.token_hex(8)
        self._placeholder = re.compile(rf"q{self._nonce}x(\d+)q")
        self.used = False
        self.images: list[str] = []
        """Sentinels of the images in the texts that went through, in order."""

    def text(self, text: str) -> str:
        """`text` with every structural token's text replaced."""
        self.images += sentinels(text)
        return self._structural.sub(self._replace, text)

    def tree(self, value: Any) -> Any:
        """A JSON-like value with `text` applied to every string in it, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.tree(key): self.tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value

    def restore(self, text: str) -> str:
        """Undo `text` in whatever the template made of it."""
        return self._placeholder.sub(lambda match: self._texts[int(match[1])], text) if self.used else text

    def _replace(self, match: re.Match[str]) -> str:
        self.used = True
        return f"q{self._nonce}x{self._number[match[0]]}q"


class Encoder:
    """Encodes rendered templates. `structural` maps a structural token's text to its id.

    `image` is what the template writes for an image.
    """

    def __init__(self, model: ModelFiles, image: str | None = None) -> None:
        self._image = image
        self._tokenizer: Tokenizer = model.tokenizer.backend_tokenizer
        added: dict[int, AddedToken] = self._tokenizer.get_added_tokens_decoder()
        # Besides the special ones: markup that the template itself writes, e.g. Qwen's <tool_call>. Any
        # other added token (a run of spaces, a whole line of a known prompt) is ordinary vocabulary.
        self.structural: dict[str, int] = {
            token.content: number
            for number, token in added.items()
            if token.special or (token.content in model.template and _MARKUP.fullmatch(token.content))
        }
        self.special = frozenset(token.content for token in added.values() if token.special)
        self.special_ids = frozenset(number for number, token in added.items() if token.special)
        self._texts = tuple(sorted(self.structural, key=len, reverse=True))
        self.pattern = re.compile("|".join(map(re.escape, self._texts)) or r"(?!)")
        self.structural_ids = frozenset(self.structural.values())
        self._added = list(added.values())
        self._rstrip = frozenset(token.content for token in self._added if token.rstrip)
        self._lstrip = frozenset(token.content for token in self._added if token.lstrip)
        self._plain_tokenizers: dict[bool, Tokenizer] = {}
        self._renumbered: dict[int, int] = {}

    def escape(self) -> Escape:
        """A fresh set of placeholders, for one rendering."""
        return Escape(self.pattern, self._texts)

    def encode(self, rendered: str, escape: Escape) -> list[int]:
        """Ids of a rendered template whose data went through `escape`. No special tokens are added.

        Raises TemplateError where the template shows images in another order than they were given in.
        """
        if escape.images:
            rendered = put(rendered, self._image, escape.images)
        if not escape.used:
            ids = _ids(self._tokenizer, rendered)
            written = [self.structural[match[0]] for match in self.pattern.finditer(rendered)]
            if [number for number in ids if number in self.structural_ids] == written:
                return ids
        return self._encode_runs(rendered, escape)

    def _encode_runs(self, rendered: str, escape: Escape) -> list[int]:
        ids: list[int] = []
        start, before = 0, ""
        for match in self.pattern.finditer(rendered):
            ids += self._run(escape.restore(rendered[start : match.start()]), before, match[0])
            ids.append(self.structural[match[0]])
            start, before = match.end(), match[0]
        return ids + self._run(escape.restore(rendered[start:]), before, "")

    def _run(self, text: str, before: str, after: str) -> list[int]:
        """Plain ids of the text between two structural tokens (empty: the edge of the whole text)."""
        if before in self._rstrip:
            text = text.lstrip()
        if after in self._lstrip:
            text = text.rstrip()
        if not text:
            return []
        ids = self._plain(text, opening=not before)
        if not self.structural_ids.isdisjoint(ids):
            # A model vocabulary that spells the token itself (Unigram does): cut each occurrence in two.
            cuts = [0, *(match.start() + 1 for match in self.pattern.finditer(text)), len(text)]
            halves = [text[start:end] for start, end in pairwise(cuts)]
            ids = [number for half in halves for number in self._plain(half, opening=False)]
            if not self.structural_ids.isdisjoint(ids):
                raise ValueError(f"the tokenizer turns plain text into a special token: {text[:80]!r}")
        return ids

    def _plain(self, text: str, *, opening: bool) -> list[int]:
        if opening not in self._plain_tokenizers:
            self._plain_tokenizers[opening] = self._build_plain(opening=opening)
        return [self._renumbered.get(number, number) for number in _ids(self._plain_tokenizers[opening], text)]

    def _build_plain(self, *, opening: bool) -> Tokenizer:
        """The same tokenizer without its structural tokens, for the beginning of a text or a later run of it."""
        source = self._tokenizer
        parts = {"normalizer": source.normalizer, "pre_tokenizer": source.pre_tokenizer}
        states = {name: json.loads(part.__getstate__()) if part else None for name, part in parts.items()}
        if not opening:
            states = {name: _without_first_space(state) for name, state in states.items()}
        stub = Tokenizer.from_str(json.dumps({"version": "1.0", "model": _EMPTY_MODEL, "added_tokens": [], **states}))
        plain = Tokenizer(source.model)
        if stub.normalizer is not None:
            plain.normalizer = stub.normalizer
        if stub.pre_tokenizer is not None:
            plain.pre_tokenizer = stub.pre_tokenizer
        kept = [token for token in self._added if token.content not in self.structural]
        plain.add_tokens(kept)
        # Those outside the model's vocabulary are numbered anew.
        for token in kept:
            new, old = plain.token_to_id(token.content), source.token_to_id(token.content)
            if new is not None and old is not None:
                self._renumbered[new] = old
        return plain


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """As `encode` has them; but that holds the interpreter's lock all the while, and so every other stream."""
    [encoded] = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    ids: list[int] = encoded.ids
    return ids


_EMPTY_MODEL = {"type": "BPE", "vocab": {}, "merges": []}


def _without_first_space(state: Any) -> Any:
    """The JSON state of a normaliser or pre-tokeniser, for text that does not begin the whole."""
    if isinstance(state, list):
        return [_without_first_space(item) for item in state]
    if not isinstance(state, dict):
        return state
    changed = {key: _without_first_space(value) for key, value in state.items()}
    if changed.get("prepend_scheme") == "first":
        changed["prepend_scheme"] = "never"
    return changed
