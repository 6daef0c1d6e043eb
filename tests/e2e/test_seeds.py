"""A session's seed on real vLLM: the same tokens again, whatever else is sampled at the time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from addons.caller import SESSION_HEADER, TOKEN_HEADER
from addons.config import GatewayConfig
from addons.service import Service, ServiceOptions
from replay.reader import Reader
from replay.records import NewSession
from replay.store import Store
from replay.writer import Recorder

pytestmark = pytest.mark.vllm


async def test_a_session_is_sampled_the_same_again_alone_or_in_company(tiny_vllm: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'record.db'}"
    service = Service(ServiceOptions(engine=tiny_vllm, store=url, config=GatewayConfig(token="t")))
    port = await service.start()

    async def session(name: str) -> None:
        headers = {SESSION_HEADER: name, TOKEN_HEADER: "t"}
        async with AsyncOpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="k", default_headers=headers, timeout=120
        ) as client:
            for text in ("one" + " and one" * 1500, "two", "two"):  # vLLM would take the first in parts
                await client.chat.completions.create(
                    model="m", max_tokens=60, messages=[{"role": "user", "content": f"tell of {text}"}]
                )

    try:
        with Store.open(url) as store, Recorder(store) as recorder:
            seeds = {"alone": 5, "again": 5, "other": 6, "crowd-0": None, "crowd-1": None, "crowd-2": None}
            for name, seed in seeds.items():
                recorder.open_session(NewSession(name=name, metadata={} if seed is None else {"seed": seed})).result()
            await session("alone")
            await asyncio.gather(*(session(name) for name in seeds if name != "alone"))
            reader = Reader(store)
            said = {
                name: [tuple(reader.sampled(turn)[0]) for turn in reader.turns(reader.session(name))] for name in seeds
            }
    finally:
        await service.stop()
    assert said["alone"] == said["again"]
    assert len({tuple(said[name]) for name in seeds}) == 5, "all the others differ"
    assert said["alone"][1] != said["alone"][2], "the same question twice in a session gets two samples"
