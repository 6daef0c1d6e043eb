"""What runs through a local stack ends when the stack does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from trainer import local, processes
from trainer.local import LocalStack
from trainer.processes import ProcessFailed
from trainer.serve import ServeOptions


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "WATCH_SECONDS", 0.02)


class Engine:
    """Answers /health with `status`."""

    status = 200

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=self.status)


@pytest.fixture
async def engine() -> AsyncIterator[tuple[Engine, str]]:
    engine = Engine()
    app = web.Application()
    app.router.add_get("/health", engine.health)
    async with TestServer(app) as server:
        yield engine, str(server.make_url("")).rstrip("/")


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], LocalStack]:
    def made(url: str) -> LocalStack:
        return LocalStack(
            model="m", store_url="", home=tmp_path, logs=tmp_path, stack=ExitStack(), say=lambda _: None, engine=url
        )

    return made


class Work:
    """Goes on until it is cancelled, and takes a moment to clean up."""

    cleaned = False

    async def __call__(self) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            self.cleaned = True


async def test_what_works_returns_and_raises_as_without(
    engine: tuple[Engine, str], make: Callable[[str], LocalStack]
) -> None:
    async def three() -> int:
        await asyncio.sleep(0.1)
        return 3

    async def wrong() -> None:
        raise LookupError("its own")

    stack = make(engine[1])
    assert await stack.during(three()) == 3
    with pytest.raises(LookupError, match="its own"):
        await stack.during(wrong())


async def test_a_dead_engine_ends_it(engine: tuple[Engine, str], make: Callable[[str], LocalStack]) -> None:
    server, url = engine
    work = Work()
    running = asyncio.create_task(make(url).during(work()))
    await asyncio.sleep(0.1)
    assert not running.done()
    server.status = 503
    with pytest.raises(ProcessFailed, match=f"the engine of the vLLM at {url} has died"):
        await asyncio.wait_for(running, 10)
    assert work.cleaned


async def test_a_process_that_ends_ends_it(
    engine: tuple[Engine, str], make: Callable[[str], LocalStack], tmp_path: Path
) -> None:
    stack, work, log = make(engine[1]), Work(), tmp_path / "tap.log"
    process = processes.start([sys.executable, "-c", "import time; time.sleep(0.3); exit('no port')"], log=log)
    stack._started.append(("the proxy", process, log))
    with pytest.raises(ProcessFailed, match=r"(?s)the proxy ended with status 1.*no port"):
        await asyncio.wait_for(stack.during(work()), 10)
    assert work.cleaned


async def test_an_engine_that_is_away_for_a_moment_does_not(make: Callable[[str], LocalStack]) -> None:
    async def some() -> str:
        await asyncio.sleep(0.2)
        return "done"

    assert await make("http://127.0.0.1:9").during(some()) == "done"


async def test_cancelled_it_cleans_up(engine: tuple[Engine, str], make: Callable[[str], LocalStack]) -> None:
    work = Work()
    running = asyncio.create_task(make(engine[1]).during(work()))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.cleaned


def test_the_window_is_the_machines(make: Callable[[str], LocalStack], tmp_path: Path) -> None:
    stack = make("")
    stack.model = str(tmp_path)
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 40960}')
    options = ServeOptions(model=stack.model)
    assert stack._sized(options, cpu=True).max_model_len == 8192
    gpu = stack._sized(options, cpu=False)
    assert (gpu.max_model_len, gpu.extra[-2:]) == (None, ("--max-model-len", "auto")), "as much as fits"
    stack.window = 16384
    asked = replace(options, max_model_len=16384)
    assert stack._sized(asked, cpu=True).max_model_len == stack._sized(asked, cpu=False).max_model_len == 16384
    assert "auto" not in stack._sized(asked, cpu=False).extra
