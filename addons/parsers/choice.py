"""Which parser reads a model's replies.

By default it is proven, not guessed: the model's own chat template writes an assistant's tool call, and the
parser must read the same call back. In this order: the response template that the model's tokenizer config
brings; our named formats, which stream; the family that `renderers` knows, found by its rendering and not by
the model's name, so that a local folder and a fine-tune are recognised. Where the template writes no calls, the
proof is in the tokens that only one format has, or in what the template tells the model about calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from renderers import Renderer, config_from_name, create_renderer
from renderers.base import MODEL_RENDERER_MAP

from addons.conversation import Tool
from addons.decode import Detokeniser, Vocabulary
from addons.encode import Encoder
from addons.model import ModelError, ModelFiles
from addons.parsers.events import Parser
from addons.parsers.formats import FORMATS, Format
from addons.parsers.held import HeldParser
from addons.parsers.proof import Make, Proof, Written
from addons.parsers.regions import RegionParser
from addons.parsers.response import ResponseFormat
from addons.render import ChatTemplate

_PREFIX = 96  # ids of the prompt's end that are looked at first: more than any generation prompt has
_RENDERERS = "renderers:"
_CONFIG = "config"
_NOT_MADE = (AssertionError, AttributeError, ImportError, LookupError, OSError, TypeError, ValueError)


class UnknownParser(ModelError):
    """No parser can be shown to read the model's replies, or the one asked for does not exist."""


@dataclass(frozen=True, slots=True)
class ParserChoice:
    """A parser for a model. `make` takes the prompt's ids and the tools offered."""

    name: str
    streams: bool
    """Whether text comes as it is sampled, or only when the reply is over."""
    vocabulary: Vocabulary
    stop_ids: frozenset[int]
    make: Make

    def thinking(self, prompt: Sequence[int]) -> bool:
        """Whether the prompt has opened the reply's reasoning and left it open."""
        return self.make(prompt, ()).reasoning()


def available() -> dict[str, str]:
    """The names that can be chosen, each with what it reads."""
    names = {form.name: form.says for form in FORMATS}
    names[_CONFIG] = "the response_template of the model's tokenizer_config.json"
    names["FILE.json"] = "a response template of your own, as transformers' ResponseParser takes it"
    families = sorted(set(MODEL_RENDERER_MAP.values()))
    return names | {f"{_RENDERERS}{family}": "the family's parser in `renderers` (not streamed)" for family in families}


def parser_for(model: ModelFiles, name: str | None = None) -> ParserChoice:
    """The parser named, or (None or "auto") the one that is proven for this model. Raises UnknownParser."""
    if name is None or name == "auto":
        return _Chooser(model).proven()
    check_name(name)
    return _Chooser(model).named(name)


def check_name(name: str) -> None:
    """Raise UnknownParser, with the list, where no model could have a parser of that name."""
    if name.endswith(".json"):
        _read(Path(name))
    elif name != "auto" and name not in available():
        raise UnknownParser(f"no parser {name!r}. Choose one of: {', '.join(available())}")


class _Chooser:
    def __init__(self, model: ModelFiles) -> None:
        self._model = model
        self._vocabulary = Vocabulary(model)
        self._template = ChatTemplate(model)
        self._encoder = Encoder(model)
        self._proof = Proof(model, self._template, self._encoder, self._vocabulary)

    def named(self, name: str) -> ParserChoice:
        if name == _CONFIG:
            if self._model.response_template is None:
                raise UnknownParser(f"{self._model.name}: its tokenizer config has no response_template")
            return self._config()
        if name.endswith(".json"):
            return self._custom(name, _read(Path(name)), name)
        for form in FORMATS:
            if form.name == name:
                return self._format(form)
        try:
            return self._held(self._renderer(name.removeprefix(_RENDERERS)), name)
        except _NOT_MADE as error:
            raise UnknownParser(f"{self._model.name}: {name} does not fit its tokenizer: {error}") from error

    def proven(self) -> ParserChoice:
        written = self._proof.plain
        choice = self._declared() if written is None else self._by_its_calls(written)
        if choice is not None:
            return choice
        why = (
            "none of them reads the tool call that its chat template writes"
            if written
            else ("its chat template shows no tool calls, so their format cannot be known")
        )
        raise UnknownParser(f"{self._model.name}: {why}. Choose one by name: {', '.join(available())}")

    def _by_its_calls(self, written: Written) -> ParserChoice | None:
        proof, hard = self._proof, self._proof.hard
        readers = [choice for choice in self._streaming() if proof.reads_back(choice.make, written)]
        # One that reads more than a plain call goes first, even before the model's own.
        better = [choice for choice in readers if hard is not None and proof.reads_back(choice.make, hard)]
        if found := [*better, *readers]:
            return found[0]
        for family in self._families():
            try:
                renderer = self._renderer(family)
                same = proof.writes_the_same(renderer, written)
            except _NOT_MADE:
                continue  # the family's tokens are not in this vocabulary
            choice = self._held(renderer, _RENDERERS + family)
            if same and proof.reads_back(choice.make, written):
                return choice
        return None

    def _streaming(self) -> Iterator[ParserChoice]:
        if self._model.response_template is not None:
            yield self._config()
        yield from map(self._format, filter(_has_calls, FORMATS))

    def _declared(self) -> ParserChoice | None:
        """The format that the model's files name without a call being written."""
        if self._model.response_template is not None:
            return self._config()
        added = set(self._model.tokenizer.get_added_vocab())
        told = self._proof.told()
        for form in FORMATS:
            by_tokens = form.tokens and added.issuperset(form.tokens)
            if by_tokens or (form.instruction is not None and re.search(form.instruction, told)):
                return self._format(form)
        return None

    def _config(self) -> ParserChoice:
        where = f"{self._model.name}: response_template in its tokenizer config"
        return self._custom(_CONFIG, self._model.response_template, where)

    def _custom(self, name: str, template: Any, where: str) -> ParserChoice:
        try:
            form = ResponseFormat(Format(name, "", template, reasoning_first=False))
        except (AttributeError, TypeError, ValueError) as error:
            raise UnknownParser(f"{where}: {error}") from error
        return self._regions(form)

    def _format(self, form: Format) -> ParserChoice:
        special = {self._encoder.structural[text]: text for text in self._encoder.special}
        return self._regions(ResponseFormat(form, special))

    def _regions(self, form: ResponseFormat) -> ParserChoice:
        def make(prompt: Sequence[int], tools: Sequence[Tool]) -> Parser:
            return RegionParser(form, self._prefix(form, prompt), self._template.tools(tools))

        return ParserChoice(form.form.name, True, self._vocabulary, self._model.stop_ids, make)

    def _held(self, renderer: Renderer, name: str) -> ParserChoice:
        def make(prompt: Sequence[int], tools: Sequence[Tool]) -> Parser:
            return HeldParser(renderer, prompt, self._template.tools(tools))

        return ParserChoice(name, False, self._vocabulary, self._model.stop_ids, make)

    def _prefix(self, form: ResponseFormat, prompt: Sequence[int]) -> str:
        """What the prompt has written of the reply already: reasoning that a template opens, say."""
        # Its beginning may be far back: a reply that is continued began in an earlier turn.
        size = _PREFIX
        while form.anchored:
            text = self._spelt(form, prompt[-size:])
            if form.anchor_in(text):
                return text  # the library cuts it off at the anchor
            if size >= len(prompt):
                break
            size *= 8
        # Without an anchor it is what follows the last structural token that is no marker of reasoning itself.
        markers = form.reasoning_markers
        starts = (
            at + 1
            for at in range(len(prompt) - 1, -1, -1)
            if prompt[at] in self._encoder.structural_ids and not self._is_marker(prompt[at], markers)
        )
        start = next(starts, len(prompt))
        opened = self._spelt(form, prompt[start:])
        places = [place for marker in markers if (place := opened.find(form.marks.mark(marker))) >= 0]
        reply = opened[min(places) :] if places else ""
        return "" if form.reasoning_is_over(reply) else reply

    def _spelt(self, form: ResponseFormat, ids: Sequence[int]) -> str:
        detokeniser = Detokeniser(self._vocabulary)
        return "".join(form.marks.read(number, detokeniser.feed(number)) for number in ids)

    def _is_marker(self, number: int, markers: Sequence[str]) -> bool:
        text = self._model.token_text(number)
        return any(text in (marker, marker.replace("<", "</", 1)) for marker in markers)

    def _renderer(self, family: str) -> Renderer:
        return create_renderer(self._model.tokenizer, config_from_name(family))

    def _families(self) -> list[str]:
        """Families to try, the one of the model's own name first; but gpt-oss, which would download an encoding."""
        families = sorted(set(MODEL_RENDERER_MAP.values()) - {"gpt-oss"})
        own = MODEL_RENDERER_MAP.get(self._model.name)
        return sorted(families, key=lambda family: family != own)


def _has_calls(form: Format) -> bool:
    return "tool_calls" in form.template["fields"]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnknownParser(f"no response template in {path}: {error}") from error
