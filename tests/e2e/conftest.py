"""Real parts: vLLM on the tiny model, mitmdump, a harness from its registry. Each is started once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from certs import harnesses
from tests.conftest import TINY
from tests.e2e.wiretap import Wiretap
from tests.proxy import Proxy, mitmdump
from trainer import serve

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tiny_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real vLLM that serves the shipped tiny model."""
    options = serve.ServeOptions(model=str(TINY), kv_cache_gib=1, extra=("--max-num-seqs", "16"))
    with serve.running(options, log=tmp_path_factory.mktemp("vllm") / "vllm.log") as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wiretap(tiny_vllm: str) -> AsyncIterator[Wiretap]:
    async for running in Wiretap(tiny_vllm).run():
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(wiretap: Wiretap, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    """mitmdump with the addon before the tapped vLLM."""
    async with mitmdump(tmp_path_factory.mktemp("proxy"), wiretap.url, tap_max_tokens="64") as running:
        yield running


@pytest.fixture(scope="session")
def mini() -> Path:
    """The real mini-swe-agent, in an environment of its own."""
    return harnesses.install(harnesses.get("mini-swe-agent"), ROOT / ".harness")
