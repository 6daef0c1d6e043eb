"""The model behind the gateway: vLLM's facts joined with the model's own files, checked once.

vLLM may start after us, restart, or go away, and may come back as another under the same name. So the facts are asked
again after each failure, and after a silence in which it could have restarted; while calls follow each other, they cost
nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from addons.conversation import Conversation, Message
from addons.engine import Engine, EngineFacts
from addons.errors import EngineMismatch
from addons.images import Images, find_images
from addons.markup import CallMarkup, find_markup
from addons.model import ModelFiles
from addons.prompts import Prompts, ReasoningPolicy
from addons.replies import ParserChoice, parser_for

logger = logging.getLogger(__name__)

_TEXT = 'harnesstap 012 \n\t<tool_call>{"a": [1, 2]}</tool_call> Grüße 한국어 🚀'
"""Tells most tokenizers apart: digits, spaces, JSON, markup, and three scripts."""

_TALK = (
    Message("system", "Be brief."),
    Message("user", "First question?"),
    Message("assistant", "First answer."),
    Message("user", "Second question?"),
)
"""Tells chat templates apart where the server does not show its own."""

SILENCE = 10.0
"""Seconds after the last answer for which vLLM is taken to be the same; it cannot restart in less."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model ready to be asked."""

    facts: EngineFacts
    files: ModelFiles
    prompts: Prompts
    parser: ParserChoice
    markup: CallMarkup | None
    """How it writes tool calls; None where that is not known."""
    images: Images | None = None
    """None where it takes no images."""


class Backend:
    """Gives the :class:`Model`, connecting on first use.

    Args:
        engine: the vLLM client.
        model: folder or hub id of the model's files; empty to use what vLLM says it serves.
        parser: name of the reply parser, or `auto`.
        reasoning: whether earlier turns keep their reasoning, or as the template has it.
    """

    def __init__(
        self, engine: Engine, model: str = "", parser: str = "auto", reasoning: ReasoningPolicy = "keep"
    ) -> None:
        self.engine = engine
        self._name = model
        self._parser = parser
        self._reasoning = reasoning
        self._model: Model | None = None
        self._loaded: dict[str, tuple[ModelFiles, Prompts, ParserChoice]] = {}
        self._lock = asyncio.Lock()

    def load(self, name: str) -> tuple[ModelFiles, Prompts, ParserChoice]:
        """Load a model's files; kept until they change, so a restart of vLLM costs nothing.

        Raises:
            ModelError: no usable tokenizer or chat template there.
            UnknownParser: nothing reads this model's replies; the message lists what can be chosen.
        """
        if name not in self._loaded or self._loaded[name][0].changed():
            self._loaded[name] = load_model(name, self._parser, self._reasoning)
        return self._loaded[name]

    async def model(self) -> Model:
        """The model, checked.

        Raises:
            EngineUnavailable: vLLM is down or loading.
            EngineMismatch: vLLM runs in a way that breaks a promise; the message says what to change.
        """
        if self._model is not None and self._heard_lately():
            return self._model
        async with self._lock:
            if self._model is None or not self._heard_lately():
                known, self._model = self._model, None
                self._model = await self._verified(known)
        return self._model

    def _heard_lately(self) -> bool:
        return time.monotonic() - self.engine.heard_at < SILENCE

    async def _verified(self, known: Model | None) -> Model:
        facts = await self.engine.facts()
        files, prompts, parser = await asyncio.to_thread(self.load, self._name or facts.root)
        await self.engine.verify_logprobs(facts, files.tokenizer.encode(_TEXT, add_special_tokens=False)[:4])
        await self._verify_tokenizer(facts, files)
        await self._verify_template(facts, files, prompts)
        if known is not None and (known.facts, known.files) == (facts, files):
            return known
        stops = sorted(files.token_text(number) for number in files.stop_ids)
        images = await find_images(self.engine, facts, prompts)
        logger.info(
            "vLLM at %s serves %s (window %d, template %.12s); turns end with %s; replies read by %s; images are %s; "
            "weight versions come %s",
            self.engine.url, facts.model, facts.window, files.template_hash, " or ".join(stops), parser.name,
            "words" if images is None else "shown",
            "a token span" if facts.reports_spans else "a call: start vLLM with --enable-scale-out for more",
        )  # fmt: skip
        return Model(facts, files, prompts, parser, find_markup(prompts.template, stops, parser.name), images)

    def forget(self) -> None:
        """Ask vLLM again at the next call: it failed, and may come back as another."""
        self._model = None

    async def _verify_tokenizer(self, facts: EngineFacts, files: ModelFiles) -> None:
        """The served model must split text as our files do, or every prompt would be wrong."""
        served = await self.engine.tokenize(facts, _TEXT)
        ours = files.tokenizer.encode(_TEXT, add_special_tokens=False)
        if served != ours:
            at = _first_difference(served, ours)
            raise EngineMismatch(
                f"the tokenizer of {self._name or facts.root} is not the one vLLM serves for {facts.model}: they "
                f"differ at token {at} of a test (served {served[at : at + 3]}, ours {ours[at : at + 3]}); set the "
                "model option to the folder or hub id that vLLM loaded"
            )

    async def _verify_template(self, facts: EngineFacts, files: ModelFiles, prompts: Prompts) -> None:
        """The served model must write conversations as our template does: it is what it will be deployed with."""
        shown = await self.engine.chat_template()
        if shown is not None and shown != files.template:
            line = _first_difference(shown.splitlines(), files.template.splitlines()) + 1
            raise self._other_template(facts, f"they differ in line {line}")
        served = await self.engine.tokenize_chat(facts, prompts.template.messages(_TALK))
        if served is None:
            logger.info("vLLM at %s has no chat template for %s; ours is used", self.engine.url, facts.model)
            return
        ours = prompts.first(Conversation(_TALK))
        texts = [str(files.tokenizer.decode(ids, skip_special_tokens=False)) for ids in (served, ours)]
        if served != ours and not ("strftime_now" in files.template and _undated(texts[0]) == _undated(texts[1])):
            at = _first_difference(*texts)
            parts = [repr(text[max(at - 20, 0) : at + 20]) for text in texts]
            raise self._other_template(facts, f"a test conversation has {parts[0]} there, and here {parts[1]}")

    def _other_template(self, facts: EngineFacts, how: str) -> EngineMismatch:
        return EngineMismatch(
            f"the chat template of {self._name or facts.root} is not the one vLLM serves {facts.model} with: {how}. "
            "Start vLLM without --chat-template and --default-chat-template-kwargs, or set the model option to a "
            "folder whose chat_template.jinja is the one that vLLM was given"
        )


def load_model(
    name: str, parser: str = "auto", reasoning: ReasoningPolicy = "keep"
) -> tuple[ModelFiles, Prompts, ParserChoice]:
    """Read a model's files and see that everything about them is usable.

    Raises:
        ModelError, UnknownParser: as `Backend.load`.
    """
    files = ModelFiles.load(name)
    return files, Prompts(files, reasoning), parser_for(files, parser)


def _first_difference(first: Sequence[object], second: Sequence[object]) -> int:
    shorter = min(len(first), len(second))
    return next((i for i in range(shorter) if first[i] != second[i]), shorter)


def _undated(text: str) -> str:
    """Without days and months: a template that prints the date does it by its machine's clock."""
    return re.sub(r"\d+|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*", "", text)
