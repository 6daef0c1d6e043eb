"""A reply that the client has seen in whole is in the record, though mitmdump dies at that instant."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from addons.model import ModelFiles
from certs import keys
from certs.environment import proxy_url
from replay.reader import Reader
from replay.store import Store
from tests.proxy import Proxy, mitmdump
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.slow


@pytest.fixture
async def engine(tiny: ModelFiles) -> AsyncIterator[ScriptedEngine]:
    async for running in ScriptedEngine(tiny).run():
        yield running


async def _until_the_end(proxy: Proxy, *, stream: bool) -> None:
    """Read to the terminal event, and kill mitmdump the moment it is here."""
    trust = ssl.create_default_context(cafile=str(proxy.home / "certs" / "ca.pem"))
    through = proxy_url("127.0.0.1", proxy.port, "mortal", keys.session_key(proxy.home, "mortal"))
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    url = "https://api.openai.com/v1/chat/completions"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, proxy=through, ssl=trust) as reply:
        if stream:
            async for line in reply.content:
                if b'"finish_reason":"stop"' in line:
                    break
        else:
            json.loads(await reply.read())
        os.kill(proxy.process.pid, signal.SIGKILL)
    await proxy.process.wait()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_seen_reply_survives_kill_9(engine: ScriptedEngine, tmp_path: Path, stream: bool) -> None:
    script = engine.say("every token of this")
    async with mitmdump(tmp_path, engine.url) as proxy:
        await asyncio.wait_for(_until_the_end(proxy, stream=stream), 60)
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        [turn] = reader.turns(reader.session("mortal"))
        ids = [i for piece in script.pieces for i in piece]
        assert (turn.status, turn.finish) == ("complete", "stop")
        assert reader.sampled(turn) == (ids, [-0.25] * len(ids))
        assert reader.prompt_ids(turn) == engine.requests[0]["prompt"]


async def test_a_reply_cut_by_the_kill_is_never_complete_and_aborted_by_the_next_proxy(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """The counterpart: without the end nobody may believe that the turn was whole."""
    reached = asyncio.Event()

    async def stall(index: int) -> None:
        if index == 2:
            reached.set()
            await asyncio.sleep(3600)

    engine.say("never finished", before=stall)
    async with mitmdump(tmp_path, engine.url) as proxy:
        asking = asyncio.create_task(_until_the_end(proxy, stream=True))
        await asyncio.wait_for(reached.wait(), 60)
        os.kill(proxy.process.pid, signal.SIGKILL)
        await asyncio.gather(asking, return_exceptions=True)
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        [turn] = reader.turns(reader.session("mortal"))
        assert turn.status == "open"
        async with mitmdump(tmp_path, engine.url):
            [turn] = reader.turns(reader.session("mortal"))
        assert (turn.status, turn.n_sampled, turn.done_at) == ("aborted", 0, None)
        assert turn.error is not None
        assert turn.error["kind"] == "lost"
