"""A vLLM with the adapter that is trained is asked under the adapter's name; everything else is the base model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from addons.backend import Backend
from addons.engine import ADAPTER, Engine
from addons.model import ModelFiles
from tests.addons.kit import chatml
from tests.scripted_engine import ScriptedEngine
from trainer.adapters import SERVED_NAME


class Adapted(ScriptedEngine):
    """Lists an adapter beside the base model, as vLLM does."""

    adapter = ADAPTER

    async def _models(self, request: web.Request) -> web.Response:
        listing: dict[str, Any] = orjson.loads((await super()._models(request)).body or b"")
        listing["data"].append({"id": self.adapter, "root": "/adapters/first", "parent": self.name})
        return web.json_response(listing)


class OtherAdapter(Adapted):
    adapter = "somebody-elses"


async def served(engine: ScriptedEngine) -> tuple[str, str, int]:
    async for running in engine.run():
        async with aiohttp.ClientSession() as http:
            facts = (await Backend(Engine(running.url, http)).model()).facts
            return facts.model, facts.root, facts.window
    raise AssertionError("it did not run")


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    return chatml(tmp_path)


async def test_the_adapter_is_asked_with_the_bases_files(files: ModelFiles) -> None:
    assert await served(Adapted(files, window=4096)) == (ADAPTER, str(files.path), 4096)


async def test_without_it_the_base_is_asked(files: ModelFiles) -> None:
    assert (await served(ScriptedEngine(files)))[0] == "scripted"
    assert (await served(OtherAdapter(files)))[0] == "scripted"


def test_both_sides_know_it_by_one_name() -> None:
    assert ADAPTER == SERVED_NAME
