"""What every test may use: the tiny model's files, and a gateway over a scripted engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from addons.config import GatewayConfig
from addons.model import ModelFiles
from addons.service import Service, ServiceOptions
from replay.reader import Reader
from replay.store import Store
from tests.scripted_engine import ScriptedEngine

TINY = Path(__file__).parents[1] / "trainer" / "tiny" / "checkpoint"


@pytest.fixture(scope="session")
def tiny() -> ModelFiles:
    """The shipped tiny model's tokenizer and template."""
    return ModelFiles.load(str(TINY))


@dataclass
class Rig:
    """A gateway, its scripted engine, and its store to look into."""

    engine: ScriptedEngine
    url: str
    store: Store
    reader: Reader
    service: Service


@asynccontextmanager
async def rigged(
    tiny: ModelFiles, folder: Path, engine: ScriptedEngine | None = None, **config: Any
) -> AsyncIterator[Rig]:
    """Run a gateway over a scripted engine; `config` are GatewayConfig's."""
    scripted = engine or ScriptedEngine(tiny)
    async for running in scripted.run():
        url = f"sqlite:///{folder / 'record.db'}"
        options = ServiceOptions(engine=running.url, store=url, config=GatewayConfig(**config))
        service = Service(options)
        port = await service.start()
        store = Store.open(url)
        try:
            yield Rig(running, f"http://127.0.0.1:{port}", store, Reader(store), service)
        finally:
            store.close()
            await service.stop()


@pytest.fixture
async def rig(tiny: ModelFiles, tmp_path: Path) -> AsyncIterator[Rig]:
    """A gateway with default settings."""
    async with rigged(tiny, tmp_path) as running:
        yield running
