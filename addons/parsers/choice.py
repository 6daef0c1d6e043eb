"""Which parser reads a model's replies.

By default it is proven, not guessed: the model's own chat template writes an assistant's tool call, and the
parser must read the same call back. In this order: the response template that the model's tokenizer config
brings; our named formats, which stream; the family that `renderers` knows, found by its rendering and not by
the model's name, so that a local folder and a fine-tune are recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from renderers import Renderer, config_from_name, create_renderer
from renderers.base import MODEL_RENDERER_MAP

from addons.conversation import Message, Tool, ToolCall
from addons.decode import Detokeniser, Vocabulary
from addons.encode import Encoder
from addons.habits import TemplateError
from addons.model import ModelError, ModelFiles
from addons.parsers.events import Called, Parser, merged
from addons.parsers.formats import FORMATS, HERMES, QWEN_XML
from addons.parsers.held import HeldParser
from addons.parsers.regions import RegionParser, ResponseFormat
from addons.render import ChatTemplate

_PREFIX = 96  # ids of the prompt's end that are looked at: more than any generation prompt has
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
    make: Callable[[Sequence[int], Sequence[Tool]], Parser]


def available() -> dict[str, str]:
    """The names that can be chosen, each with what it reads."""
    names = {form.name: form.says for form in FORMATS}
    names[_CONFIG] = "the response_template of the model's tokenizer_config.json"
    families = sorted(set(MODEL_RENDERER_MAP.values()))
    return names | {f"{_RENDERERS}{family}": "the family's parser in `renderers` (not streamed)" for family in families}


def parser_for(model: ModelFiles, name: str | None = None) -> ParserChoice:
    """The parser named, or (None or "auto") the one that is proven for this model. Raises UnknownParser."""
    chooser = _Chooser(model)
    if name not in (None, "auto"):
        return chooser.named(str(name))
    return chooser.proven()


class _Chooser:
    def __init__(self, model: ModelFiles) -> None:
        self._model = model
        self._vocabulary = Vocabulary(model)
        self._template = ChatTemplate(model)
        self._encoder = Encoder(model)
        self._stops = [model.token_text(number) for number in model.stop_ids]

    def named(self, name: str) -> ParserChoice:
        if name == _CONFIG:
            if self._model.response_template is None:
                raise UnknownParser(f"{self._model.name}: its tokenizer config has no response_template")
            return self._config()
        for form in FORMATS:
            if form.name == name:
                return self._regions(name, ResponseFormat(form.template, form.call_marker, reasoning_first=True))
        if name.startswith(_RENDERERS) and name in available():
            try:
                return self._held(self._renderer(name.removeprefix(_RENDERERS)), name)
            except _NOT_MADE as error:
                raise UnknownParser(f"{self._model.name}: {name} does not fit its tokenizer: {error}") from error
        raise UnknownParser(f"no parser {name!r}. Choose one of: {', '.join(available())}")

    def proven(self) -> ParserChoice:
        written = self._written_call()
        if self._model.response_template is not None:
            choice = self._config()
            if written is None or self._reads_back(choice, *written):
                return choice
        if written is not None:
            for form in (QWEN_XML, HERMES):
                choice = self.named(form.name)
                if self._reads_back(choice, *written):
                    return choice
            for family in self._families():
                try:
                    renderer = self._renderer(family)
                    same = self._writes_the_same(renderer, *written)
                except _NOT_MADE:
                    continue  # the family's tokens are not in this vocabulary
                choice = self._held(renderer, _RENDERERS + family)
                if same and self._reads_back(choice, *written):
                    return choice
        why = (
            "none of them reads the tool call that its chat template writes"
            if written
            else ("its chat template shows no tool calls, so their format cannot be known")
        )
        raise UnknownParser(f"{self._model.name}: {why}. Choose one by name: {', '.join(available())}")

    def _config(self) -> ParserChoice:
        try:
            form = ResponseFormat(self._model.response_template or {})
        except ValueError as error:
            raise UnknownParser(f"{self._model.name}: response_template in its tokenizer config: {error}") from error
        return self._regions(_CONFIG, form)

    def _regions(self, name: str, form: ResponseFormat) -> ParserChoice:
        def make(prompt: Sequence[int], tools: Sequence[Tool]) -> Parser:
            return RegionParser(form, self._prefix(form, prompt), self._template.tools(tools))

        return ParserChoice(name, True, self._vocabulary, self._model.stop_ids, make)

    def _held(self, renderer: Renderer, name: str) -> ParserChoice:
        def make(prompt: Sequence[int], tools: Sequence[Tool]) -> Parser:
            return HeldParser(renderer, prompt, self._template.tools(tools))

        return ParserChoice(name, False, self._vocabulary, self._model.stop_ids, make)

    def _prefix(self, form: ResponseFormat, prompt: Sequence[int]) -> str:
        """What the prompt has written of the reply already: reasoning that a template opens, say."""
        end = prompt[-_PREFIX:]
        text = b"".join(map(self._vocabulary.spelling, end)).decode("utf-8", "replace")
        if form.anchor_in(text):
            return text  # the library cuts it off at the anchor
        # Else what follows the last structural token that is no marker of reasoning itself.
        markers = form.reasoning_markers
        starts = (
            at + 1
            for at in range(len(end) - 1, -1, -1)
            if end[at] in self._encoder.structural_ids and not self._is_marker(end[at], markers)
        )
        start = next(starts, len(end))
        opened = b"".join(map(self._vocabulary.spelling, end[start:])).decode("utf-8", "replace")
        places = [place for marker in markers if (place := opened.find(marker)) >= 0]
        reply = opened[min(places) :] if places else ""
        return "" if form.reasoning_is_over(reply) else reply

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

    def _written_call(self) -> tuple[str, str] | None:
        """A prompt, and what the template writes after it for an assistant that calls a tool."""
        if not self._template.habits.tool_calls:
            return None
        user, tools = Message("user", "U"), self._template.tools(_TOOLS)
        try:
            before = self._template.render(self._template.messages([user]), tools)
            after = self._template.render(self._template.messages([user, _CALLING]), tools, generation=False)
        except TemplateError:
            return None
        pairs = enumerate(zip(before, after, strict=False))
        shared = next((at for at, (one, other) in pairs if one != other), min(len(before), len(after)))
        # The generation prompt may go on otherwise (DeepSeek's opens reasoning); a token is not cut in two.
        for match in self._encoder.pattern.finditer(after):
            if match.start() < shared < match.end():
                shared = match.start()
        end = min((at for stop in self._stops if (at := after.find(stop, shared)) >= 0), default=len(after))
        return after[:shared], after[shared:end]

    def _reads_back(self, choice: ParserChoice, before: str, text: str) -> bool:
        escape = self._encoder.escape()
        parser = choice.make(self._encoder.encode(before, escape), _TOOLS)
        detokeniser, events = Detokeniser(self._vocabulary), []
        for number in self._encoder.encode(text, escape):
            events += parser.feed(number, detokeniser.feed(number))
        events += parser.finish(self._stops[0])
        wanted = [Called(call.name, call.arguments) for call in _CALLING.tool_calls]
        return [event for event in merged(events) if isinstance(event, Called)] == wanted

    def _writes_the_same(self, renderer: Renderer, before: str, text: str) -> bool:
        """Whether the family renders a call as the template does; its other habits (dates) may differ."""
        messages = self._template.messages([Message("user", "U"), _CALLING])
        ids = renderer.render_ids(messages, tools=self._template.tools(_TOOLS))
        said = b"".join(map(self._vocabulary.spelling, ids)).decode("utf-8", "replace")
        return text in said


_TOOLS = (Tool("probe_tool", "d", {"type": "object", "properties": {"a": {"type": "string"}}}),)
_CALLING = Message("assistant", tool_calls=(ToolCall("call00001", "probe_tool", '{"a": "b c"}'),))
