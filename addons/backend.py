"""The model behind the gateway: vLLM's facts joined with the model's own files, checked once.

vLLM may start after us, restart, or go away; the facts are asked again after each failure.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from addons.engine import Engine, EngineFacts
from addons.errors import EngineMismatch
from addons.markup import CallMarkup, find_markup
from addons.model import ModelFiles
from addons.prompts import Prompts
from addons.replies import ParserChoice, parser_for

logger = logging.getLogger(__name__)

_TEXT = 'harnesstap 012 \n\t<tool_call>{"a": [1, 2]}</tool_call> Grüße 한국어 🚀'
"""Tells most tokenizers apart: digits, spaces, JSON, markup, and three scripts."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model ready to be asked."""

    facts: EngineFacts
    files: ModelFiles
    prompts: Prompts
    parser: ParserChoice
    markup: CallMarkup | None
    """How it writes tool calls; None where that is not known."""


class Backend:
    """Gives the :class:`Model`, connecting on first use.

    Args:
        engine: the vLLM client.
        model: folder or hub id of the model's files; empty to use what vLLM says it serves.
        parser: name of the reply parser, or `auto`.
    """

    def __init__(self, engine: Engine, model: str = "", parser: str = "auto") -> None:
        self.engine = engine
        self._name = model
        self._parser = parser
        self._model: Model | None = None
        self._loaded: dict[str, tuple[ModelFiles, Prompts, ParserChoice]] = {}
        self._lock = asyncio.Lock()

    def load(self, name: str) -> tuple[ModelFiles, Prompts, ParserChoice]:
        """Load a model's files; kept, so a restart of vLLM costs nothing.

        Raises:
            ModelError: no usable tokenizer or chat template there.
            UnknownParser: nothing reads this model's replies; the message lists what can be chosen.
        """
        if name not in self._loaded:
            files = ModelFiles.load(name)
            self._loaded[name] = (files, Prompts(files), parser_for(files, self._parser))
        return self._loaded[name]

    async def model(self) -> Model:
        """The model, checked.

        Raises:
            EngineUnavailable: vLLM is down or loading.
            EngineMismatch: vLLM runs in a way that breaks a promise; the message says what to change.
        """
        if self._model is not None:
            return self._model
        async with self._lock:
            if self._model is None:
                facts = await self.engine.facts()
                files, prompts, parser = await asyncio.to_thread(self.load, self._name or facts.root)
                await self.engine.verify_logprobs(facts, files.tokenizer.encode(_TEXT, add_special_tokens=False)[:4])
                await self._verify_tokenizer(facts, files)
                stops = [files.token_text(number) for number in files.stop_ids]
                self._model = Model(facts, files, prompts, parser, find_markup(prompts.template, stops))
                logger.info(
                    "vLLM at %s serves %s (window %d); replies read by %s",
                    self.engine.url, facts.model, facts.window, parser.name,
                )  # fmt: skip
        return self._model

    def forget(self) -> None:
        """Ask vLLM again at the next call: it failed, and may come back as another."""
        self._model = None

    async def _verify_tokenizer(self, facts: EngineFacts, files: ModelFiles) -> None:
        """The served model must split text as our files do, or every prompt would be wrong."""
        served = await self.engine.tokenize(facts, _TEXT)
        ours = files.tokenizer.encode(_TEXT, add_special_tokens=False)
        if served != ours:
            shorter = min(len(served), len(ours))
            at = next((i for i in range(shorter) if served[i] != ours[i]), shorter)
            raise EngineMismatch(
                f"the tokenizer of {self._name or facts.root} is not the one vLLM serves for {facts.model}: they "
                f"differ at token {at} of a test (served {served[at : at + 3]}, ours {ours[at : at + 3]}); set the "
                "model option to the folder or hub id that vLLM loaded"
            )
