"""Responses over a WebSocket: what goes wrong on a connection, and what becomes of the calls that were on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import WSMsgType

from addons.websocket import WAITING
from replay.schema import Turn
from tests.addons.test_gateway import turns
from tests.conftest import Rig
from tests.scripted_engine import Script

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def create(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "response.create", "model": "m", "input": [{"role": "user", "content": text}], **more}


@asynccontextmanager
async def connected(rig: Rig) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    url, headers = f"{rig.url}/v1/responses", {"session-id": "s"}
    async with aiohttp.ClientSession() as http, http.ws_connect(url, headers=headers) as socket:
        yield socket


async def events(socket: aiohttp.ClientWebSocketResponse) -> list[Any]:
    """Up to the end of one reply."""
    found: list[Any] = []
    async with asyncio.timeout(10):
        while not found or found[-1]["type"] not in ENDS:
            found.append(orjson.loads(await socket.receive_str()))
    if found[-1]["type"] == "error" and "sequence_number" in found[-1]:
        found.append(orjson.loads(await socket.receive_str()))
    return found


def said(found: list[Any]) -> str:
    return "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")


async def settled(rig: Rig, count: int = 1) -> list[Turn]:
    """The turns, once none is open."""
    for _ in range(500):
        found = turns(rig)
        if len(found) == count and all(turn.status != "open" for turn in found):
            return found
        await asyncio.sleep(0.01)
    raise AssertionError([turn.status for turn in turns(rig)])


async def test_a_warm_up_then_deltas(rig: Rig) -> None:
    """As Codex does it: what samples nothing is no turn, and is continued by its id all the same."""
    async with connected(rig) as socket:
        await socket.send_json(create("go", instructions="be brief", generate=False))
        warm = (await events(socket))[-1]["response"]
        assert (warm["output"], turns(rig)) == ([], [])
        rig.engine.say("one")
        await socket.send_json(create("now", previous_response_id=warm["id"], input=[]))
        first = await events(socket)
        assert [event["sequence_number"] for event in first] == list(range(len(first)))
        rig.engine.say("two")
        await socket.send_json(create("more", previous_response_id=first[-1]["response"]["id"]))
        assert said(await events(socket)) == "two"
    one, two = turns(rig)
    assert (one.parent_id, two.parent_id) == (None, one.id)
    assert [message["content"] for message in rig.reader.messages(two)] == ["go", "one", "more"]
    assert rig.reader.request(one)["type"] == "response.create"


async def test_a_text_or_bytes_but_json_and_a_call(rig: Rig) -> None:
    async with connected(rig) as socket:
        for bad, param in ((b"{", None), (b'{"type": "response.cancel"}', "type"), (b'{"model": "m"}', "type"),
                           (orjson.dumps(create("x", input=3)), "input")):  # fmt: skip
            await socket.send_str(bad.decode())
            [error] = await events(socket)
            assert (error["type"], error["status"], error["error"]["param"]) == ("error", 400, param)
        rig.engine.say("still here")
        await socket.send_bytes(orjson.dumps(create("x")))
        assert said(await events(socket)) == "still here"
    assert len(turns(rig)) == 1


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_an_engine_that_refuses(rig: Rig, status: int) -> None:
    async with connected(rig) as socket:
        rig.engine.scripts.append(Script([], status=status))
        await socket.send_json(create("go"))
        [error] = await events(socket)
        assert (error["type"], error["status"]) == ("error", status)
        rig.engine.say("again")
        await socket.send_json(create("go on"))
        assert said(await events(socket)) == "again"
    failed, complete = turns(rig)
    assert (failed.status, complete.status) == ("failed", "complete")


async def test_an_engine_that_dies_in_mid_reply(rig: Rig) -> None:
    async with connected(rig) as socket:
        script = rig.engine.say("one two three four", die_after=2)
        await socket.send_json(create("go"))
        found = await events(socket)
        assert [event["type"] for event in found[-2:]] == ["error", "response.failed"]
        assert "status" not in found[-2], "only an error instead of a reply has one"
        rig.engine.say("again")
        await socket.send_json(create("go"))
        assert said(await events(socket)) == "again"
    failed, complete = turns(rig)
    assert (failed.status, complete.status, complete.retry_of) == ("failed", "complete", failed.id)
    assert rig.reader.sampled(failed)[0] == [*script.pieces[0], *script.pieces[1]]


async def test_a_prompt_that_is_too_long_is_told_in_a_stream(rig: Rig) -> None:
    """Codex compacts on that alone."""
    async with connected(rig) as socket:
        await socket.send_json(create("word " * 40_000))
        found = await events(socket)
        assert found[0]["type"] == "response.created"
        assert found[-1]["response"]["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("politely", [True, False])
async def test_a_harness_that_leaves_in_mid_reply(rig: Rig, politely: bool) -> None:
    """Its turn is aborted with what was sampled, at once; what it had sent after that is no turn."""
    never = asyncio.Event()

    async def stuck(index: int) -> None:
        if index == 3:
            await never.wait()

    script = rig.engine.say("one two three four five", before=stuck)
    async with connected(rig) as socket:
        await socket.send_json(create("go"))
        await socket.send_json(create("and this"))
        async with asyncio.timeout(10):
            while "delta" not in (await socket.receive_str()):
                pass
        if politely:
            await socket.close()
        else:
            socket._response.close()  # the connection is gone without a word
    [turn] = await settled(rig)
    sampled = rig.reader.sampled(turn)[0]
    assert turn.status == "aborted"
    assert sampled == [i for piece in script.pieces[:3] for i in piece]
    async with asyncio.timeout(10):
        while not rig.engine.aborted:  # noqa: ASYNC110 # the engine hears of it a moment after the record
            await asyncio.sleep(0.01)
    assert (rig.engine.aborted, len(rig.engine.requests)) == (1, 1)


async def test_calls_that_come_together_are_answered_in_order(rig: Rig) -> None:
    first_asked, second_sent = asyncio.Event(), asyncio.Event()

    async def held(_: int) -> None:
        first_asked.set()
        await second_sent.wait()

    rig.engine.say("first", before=held)
    rig.engine.say("second")
    async with connected(rig) as socket:
        await socket.send_json(create("1"))
        await first_asked.wait()
        await socket.send_json(create("2"))
        await socket.ping()
        second_sent.set()
        assert [said(await events(socket)), said(await events(socket))] == ["first", "second"]
    assert [turn.status for turn in turns(rig)] == ["complete", "complete"]
    assert [[m["content"] for m in rig.reader.new_messages(turn)] for turn in turns(rig)] == [["1"], ["2"]]


async def test_more_calls_than_can_wait(rig: Rig) -> None:
    let_go = asyncio.Event()
    asked = asyncio.Event()

    async def held(_: int) -> None:
        asked.set()
        await let_go.wait()

    rig.engine.say("0", before=held)
    for number in range(WAITING):
        rig.engine.say(str(number + 1))
    async with connected(rig) as socket:
        await socket.send_json(create("0"))
        await asked.wait()
        for number in range(WAITING + 1):
            await socket.send_json(create(str(number + 1)))
        found = await events(socket)
        assert (found[-1]["status"], found[-1]["error"]["code"]) == (429, "rate_limit_exceeded")
        assert found[-1]["headers"] == {"retry-after": "5"}
        let_go.set()
        assert [said(await events(socket)) for _ in range(WAITING + 1)] == [str(n) for n in range(WAITING + 1)]


async def test_a_proxy_that_shuts_down_says_so(rig: Rig) -> None:
    """An idle connection is closed at once, and so is a busy one: its turn is aborted, with what was sampled."""
    begun = asyncio.Event()

    async def stuck(index: int) -> None:
        if index == 2:
            begun.set()
            await asyncio.Event().wait()

    script = rig.engine.say("one two three", before=stuck)
    async with connected(rig) as idle, connected(rig) as busy:
        await busy.send_json(create("go"))
        await begun.wait()
        reader = asyncio.create_task(_until_closed(busy))
        async with asyncio.timeout(5):
            stopping = asyncio.create_task(rig.service.stop())
            assert (await idle.receive()).type is WSMsgType.CLOSE
            assert await reader
            await stopping
        assert (idle.close_code, busy.close_code) == (1001, 1001)
    [turn] = turns(rig)
    assert (turn.status, rig.reader.sampled(turn)[0]) == ("aborted", [i for piece in script.pieces[:2] for i in piece])


async def _until_closed(socket: aiohttp.ClientWebSocketResponse) -> bool:
    return [message async for message in socket] != []


async def test_a_fault_of_ours_is_told_and_the_connection_lives(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(rig) as socket:
        with monkeypatch.context() as broken:
            broken.setattr("addons.calls.read_json", lambda _: 1 / 0)
            await socket.send_json(create("x"))
            [error] = await events(socket)
        assert error["status"] == 500
        assert "ZeroDivisionError" in error["error"]["message"]
        rig.engine.say("fine")
        await socket.send_json(create("x"))
        assert said(await events(socket)) == "fine"


async def test_a_path_without_a_websocket(rig: Rig) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{rig.url}/v1/responses") as reply:
        assert (reply.status, (await reply.json())["error"]["code"]) == (404, "unknown_url")
