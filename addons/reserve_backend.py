"""A model without a vLLM: only its files are there, to read stored replies with."""

from __future__ import annotations

import asyncio

from addons.backend import Backend, Model
from addons.engine import Engine, EngineFacts
from addons.errors import BadRequest
from addons.markup import find_markup
from addons.prompts import ReasoningPolicy

_ENDLESS = 1 << 30
"""A window that every stored turn fits."""


class OfflineBackend(Backend):
    """Gives the model from its files alone."""

    def __init__(self, engine: Engine, model: str, parser: str = "auto", reasoning: ReasoningPolicy = "keep") -> None:
        super().__init__(engine, model, parser, reasoning)
        self._files = model

    async def model(self) -> Model:
        """The model.

        Raises:
            ModelError, UnknownParser: as `Backend.load`.
            BadRequest: nobody said which model.
        """
        if not self._files:
            raise BadRequest("a replay without vLLM needs the model's files: set the model option to their folder")
        files, prompts, parser = await asyncio.to_thread(self.load, self._files)
        stops = sorted(files.token_text(number) for number in files.stop_ids)
        facts = EngineFacts(files.name, files.name, _ENDLESS, reports_weights=False)
        return Model(facts, files, prompts, parser, find_markup(prompts.template, stops, parser.name))
