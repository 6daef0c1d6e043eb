"""The likeliest tokens beside the sampled ones, and a reply that goes on from a prefill, on real vLLM."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from addons.service import Service, ServiceOptions
from replay.reader import Reader
from replay.store import Store

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]
USER = {"role": "user", "content": "list the files"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tiny_vllm: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, Path]]:
    """The gateway's address, and its record."""
    record = tmp_path_factory.mktemp("gateway") / "record.db"
    service = Service(ServiceOptions(engine=tiny_vllm, store=f"sqlite:///{record}"))
    port = await service.start()
    yield f"http://127.0.0.1:{port}", record
    await service.stop()


async def post(url: str, path: str, body: Any) -> Any:
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
        response = await http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_top_logprobs_are_those_of_the_sampled_distribution(gateway: tuple[str, Path]) -> None:
    url, record = gateway
    body = {"model": "m", "messages": [USER], "logprobs": True, "top_logprobs": 3, "max_tokens": 8, "seed": 7}
    reply = await post(url, "/v1/chat/completions", body)
    entries = reply["choices"][0]["logprobs"]["content"]
    with Store.open(f"sqlite:///{record}") as store:
        reader = Reader(store)
        [turn] = [turn for session in reader.sessions() for turn in reader.turns(session)]
        _, logprobs = reader.sampled(turn)
    assert [entry["logprob"] for entry in entries] == pytest.approx(logprobs[: len(entries)], abs=1e-6)
    assert turn.untrainable is None
    for entry in entries:
        values = [place["logprob"] for place in entry["top_logprobs"]]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) < 1 + 1e-4
        likeliest = entry["top_logprobs"][0]
        assert entry["logprob"] <= likeliest["logprob"] + 1e-6
        same = [place for place in entry["top_logprobs"] if place["bytes"] == entry["bytes"]]
        assert all(place["logprob"] == pytest.approx(entry["logprob"], abs=1e-6) for place in same)


async def test_a_prefill_is_continued(gateway: tuple[str, Path]) -> None:
    url, _ = gateway
    body = {"model": "m", "max_tokens": 8, "messages": [USER, {"role": "assistant", "content": "The files are"}]}
    reply = await post(url, "/v1/messages", body)
    assert reply["usage"]["output_tokens"] <= 8
    assert "The files are" not in reply["content"][0]["text"] if reply["content"] else True
