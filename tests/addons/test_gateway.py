"""The life of a call through the gateway, with the official SDK as the client and a scripted engine behind."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import brotli
import openai
import pytest
import zstandard
from openai import AsyncOpenAI

from addons.calls import Calls
from addons.dialects import chat_stream
from addons.errors import EngineMismatch
from addons.model import ModelFiles
from addons.request import Request
from addons.turn import LiveTurn
from replay.schema import Turn
from tests.conftest import Rig, rigged
from tests.scripted_engine import Script, ScriptedEngine

BASH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}
USER: dict[str, Any] = {"role": "user", "content": "list the files"}
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls -la"}}\n</tool_call>'


def client(rig: Rig) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="sk-nobody", max_retries=0)


def turns(rig: Rig) -> list[Turn]:
    found = [turn for session in rig.reader.sessions() for turn in rig.reader.turns(session)]
    return sorted(found, key=lambda turn: turn.id)


async def test_a_call_that_does_not_stream(rig: Rig) -> None:
    script = rig.engine.say("hello there")
    reply = await client(rig).chat.completions.create(model="gpt-x", messages=[USER])
    choice = reply.choices[0]
    assert (choice.message.content, choice.finish_reason, choice.message.tool_calls) == (
        "hello there",
        "stop",
        None,
    )
    assert reply.id.startswith("chatcmpl-")
    assert reply.model == "gpt-x"
    [turn] = turns(rig)
    ids = [i for piece in script.pieces for i in piece]
    assert rig.reader.sampled(turn) == (ids, [-0.25] * len(ids))
    assert rig.reader.prompt_ids(turn) == rig.engine.requests[0]["prompt"]
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (turn.prompt_length, len(ids))
    assert (turn.status, turn.finish, turn.drift_reason, turn.weight_version) == (
        "complete",
        "stop",
        "first",
        "0",
    )
    assert turn.delivered_at is not None or turn.done_at is not None
    assert rig.engine.requests[0]["stream"] is False


async def test_the_first_delta_leaves_before_the_last_token_is_sampled(rig: Rig) -> None:
    seen = asyncio.Event()

    async def wait_for_client(index: int) -> None:
        if index == 3:
            await asyncio.wait_for(seen.wait(), 10)

    rig.engine.say("one two three four", before=wait_for_client)
    text = ""
    async for chunk in await client(rig).chat.completions.create(model="m", messages=[USER], stream=True):
        text += chunk.choices[0].delta.content or ""
        if text:
            seen.set()
    assert text == "one two three four"


async def test_the_turn_is_committed_before_the_terminal_event(rig: Rig) -> None:
    rig.engine.say("short")
    body = {"model": "m", "messages": [USER], "stream": True}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{rig.url}/v1/chat/completions", json=body) as reply,
    ):
        async for line in reply.content:
            if b'"finish_reason":"stop"' in line:
                [turn] = turns(rig)
                assert turn.status == "complete"
                break
        else:
            pytest.fail("no terminal event")


async def test_an_agent_loop_is_one_sequence(rig: Rig) -> None:
    """T2: each prompt is the parent's prompt + the ids sampled + what is new, though the harness re-serialises."""
    messages: list[Any] = [{"role": "system", "content": "s"}, USER]
    for number in range(3):
        rig.engine.say(CALL)
        reply = await client(rig).chat.completions.create(model="m", messages=messages, tools=[BASH])
        message = reply.choices[0].message
        assert message.tool_calls
        call = message.tool_calls[0]
        assert call.type == "function"
        echoed = {"id": call.id, "type": "function"}
        arguments = json.dumps(json.loads(call.function.arguments), indent=number or None)
        messages.append({"role": "assistant", "content": None if number else "", "tool_calls": [
            {**echoed, "function": {"name": "bash", "arguments": arguments}}]})  # fmt: skip
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"result {number}"})
    rig.engine.say("done")
    await client(rig).chat.completions.create(model="m", messages=messages, tools=[BASH])
    chain = turns(rig)
    assert [t.parent_id for t in chain] == [None, *(t.id for t in chain[:-1])]
    for parent, child in itertools.pairwise(chain):
        kept = rig.reader.prompt_ids(parent) + rig.reader.sampled(parent)[0]
        assert rig.reader.prompt_ids(child)[: len(kept)] == kept
    assert [r["prompt"] for r in rig.engine.requests] == [rig.reader.prompt_ids(t) for t in chain]
    assert rig.reader.request(chain[-1])["messages"] == messages


async def test_a_restarted_proxy_continues_the_conversation(tiny: ModelFiles, tmp_path: Path) -> None:
    messages: list[Any] = [USER]
    for words in ("first", "second"):
        async with rigged(tiny, tmp_path) as rig:
            rig.engine.say(words)
            reply = await client(rig).chat.completions.create(model="m", messages=messages)
            messages += [{"role": "assistant", "content": reply.choices[0].message.content}, USER]
            chain = turns(rig)
    assert [t.parent_id for t in chain] == [None, chain[0].id]
    assert chain[0].session_id == chain[1].session_id


async def test_strangers_with_the_same_words_are_two_sessions(rig: Rig) -> None:
    for _ in range(2):
        rig.engine.say("hi")
        await client(rig).chat.completions.create(model="m", messages=[USER])
    assert len(rig.reader.sessions()) == 2


async def test_what_the_harness_calls_its_session_is_one(rig: Rig) -> None:
    for word in ("a", "b"):
        rig.engine.say("hi")
        await client(rig).chat.completions.create(
            model="m", messages=[{"role": "user", "content": word}], extra_headers={"session-id": "abc/1"}
        )
    [session] = rig.reader.sessions()
    assert session.name.startswith("session-id.abc-1.")
    assert session.harness == "asyncopenai"
    assert [(t.drift_reason, t.purpose) for t in turns(rig)] == [("first", "main")] * 2


async def test_bad_input_is_the_providers_400(rig: Rig) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client(rig).chat.completions.create(model="m", messages=[{"role": "wizard", "content": "x"}])  # type: ignore[list-item,misc]
    assert caught.value.param == "messages[0].role"
    assert "wizard" in caught.value.message
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{rig.url}/v1/chat/completions", data=b"{oops") as reply,
    ):
        assert reply.status == 400
        assert "JSON" in (await reply.json())["error"]["message"]
    assert turns(rig) == []


async def test_an_unknown_field_is_recorded(rig: Rig) -> None:
    rig.engine.say("hi")
    await client(rig).chat.completions.create(model="m", messages=[USER], extra_body={"next_week": True})
    assert turns(rig)[0].ignored_fields == ["next_week"]


async def test_a_prompt_over_the_window(tiny: ModelFiles, tmp_path: Path) -> None:
    async with rigged(tiny, tmp_path, ScriptedEngine(tiny, window=64)) as rig:
        with pytest.raises(openai.BadRequestError) as caught:
            await client(rig).chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * 100}])
        assert caught.value.code == "context_length_exceeded"
        [turn] = turns(rig)
        assert (turn.status, turn.prompt_length) == ("failed", len(rig.reader.prompt_ids(turn)))
        assert turn.prompt_length > 64


async def test_no_engine_is_a_503_and_a_failed_turn(tiny: ModelFiles, tmp_path: Path) -> None:
    async with rigged(tiny, tmp_path) as rig:
        rig.engine.scripts.append(Script([[1]], status=503))
        with pytest.raises(openai.InternalServerError) as caught:
            await client(rig).chat.completions.create(model="m", messages=[USER], stream=True)
        assert caught.value.status_code == 503
        assert caught.value.response.headers["retry-after"] == "5"
        [turn] = turns(rig)
        assert turn.status == "failed"
        assert turn.error is not None
        assert turn.error["kind"] == "unavailable"
        rig.engine.say("back")
        reply = await client(rig).chat.completions.create(model="m", messages=[USER])
        assert reply.choices[0].message.content == "back"


async def test_an_engine_that_dies_in_mid_reply(rig: Rig) -> None:
    seen = asyncio.Event()

    async def until_seen(index: int) -> None:
        if index == 3:
            await asyncio.wait_for(seen.wait(), 10)

    script = rig.engine.say("one two three four five", before=until_seen, die_after=3)

    async def read() -> None:
        text = ""
        async for chunk in await client(rig).chat.completions.create(model="m", messages=[USER], stream=True):
            text += chunk.choices[0].delta.content or ""
            if text == rig.engine.decode(script, 3):
                seen.set()

    with pytest.raises(openai.APIError, match="went away"):
        await read()
    [turn] = turns(rig)
    assert turn.status == "failed"
    assert rig.reader.sampled(turn)[0] == [i for piece in script.pieces[:3] for i in piece]


async def test_a_client_that_leaves_stops_the_sampling(rig: Rig) -> None:
    async def stall(index: int) -> None:
        if index == 3:
            await asyncio.sleep(3600)

    script = rig.engine.say("one two three four five", before=stall)
    stream = await client(rig).chat.completions.create(model="m", messages=[USER], stream=True)
    text = ""
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
        if text == rig.engine.decode(script, 3):
            break
    await stream.close()
    for _ in range(500):
        if turns(rig)[0].status == "aborted" and rig.engine.aborted:
            break
        await asyncio.sleep(0.01)
    [turn] = turns(rig)
    assert (turn.status, turn.delivered_at) == ("aborted", None)
    assert rig.reader.sampled(turn)[0] == [i for piece in script.pieces[:3] for i in piece]
    assert rig.engine.aborted == 1


async def test_the_same_call_after_an_abort_is_its_retry(rig: Rig) -> None:
    headers = {"session-id": "s"}
    rig.engine.say("one two three", die_after=1)
    with pytest.raises(openai.APIError):
        await client(rig).chat.completions.create(model="m", messages=[USER], extra_headers=headers)
    rig.engine.say("fine")
    await client(rig).chat.completions.create(model="m", messages=[USER], extra_headers=headers)
    rig.engine.say("again, on purpose")
    await client(rig).chat.completions.create(model="m", messages=[USER], extra_headers=headers)
    failed, retried, repeated = turns(rig)
    assert (failed.retry_of, retried.retry_of, repeated.retry_of) == (None, failed.id, None)


async def test_one_call_at_a_time(rig: Rig) -> None:
    """parallel_tool_calls=false is honoured by ending the turn after the first call, and stays trainable."""
    for stream in (False, True):
        script = rig.engine.say(f"{CALL}\n{CALL}", size=1000)
        asked: Any = client(rig).chat.completions.create(
            model="m", messages=[USER], tools=[BASH], parallel_tool_calls=False, stream=stream
        )
        if stream:
            deltas = [c.choices[0] async for c in await asked]
            assert {call.index for d in deltas for call in d.delta.tool_calls or ()} == {0}
            assert deltas[-1].finish_reason == "tool_calls"
        else:
            choice = (await asked).choices[0]
            assert (len(choice.message.tool_calls), choice.finish_reason) == (1, "tool_calls")
    ids = [i for piece in script.pieces for i in piece]
    for turn in turns(rig):
        kept, logprobs = rig.reader.sampled(turn)
        assert kept == ids[: len(kept)]
        assert len(kept) == len(logprobs) < len(ids)
        assert turn.untrainable is None


async def test_a_forced_call_is_a_grammar_and_untrainable(rig: Rig) -> None:
    rig.engine.say(CALL)
    await client(rig).chat.completions.create(model="m", messages=[USER], tools=[BASH], tool_choice="required")
    assert "tags_with_separator" in rig.engine.requests[0]["structured_outputs"]["structural_tag"]
    assert turns(rig)[0].untrainable == "constrained decoding"


async def test_stop_strings_length_and_constraints(rig: Rig) -> None:
    rig.engine.say("answer END", end=None, stop_reason="END")
    reply = await client(rig).chat.completions.create(model="m", messages=[USER], stop="END")
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("answer ", "stop")
    rig.engine.say("cut sho", end=None, finish="length")
    reply = await client(rig).chat.completions.create(model="m", messages=[USER], max_tokens=2)
    assert reply.choices[0].finish_reason == "length"
    rig.engine.say('{"a": 1}')
    await client(rig).chat.completions.create(model="m", messages=[USER], response_format={"type": "json_object"})
    stopped, cut, constrained = turns(rig)
    assert (stopped.finish, stopped.stop_sequence) == ("stop_sequence", "END")
    assert (cut.finish, cut.sampling_sent["max_tokens"]) == ("length", 2)
    assert constrained.untrainable == "constrained decoding"
    assert rig.engine.requests[2]["structured_outputs"].keys() == {"structural_tag"}


async def test_a_route_that_is_not_served_says_so_in_the_providers_words(rig: Rig) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.post(f"{rig.url}/v1/embeddings", json={}) as reply:
            assert (reply.status, (await reply.json())["error"]["code"]) == (404, "unknown_url")
        async with http.post(f"{rig.url}/v1/messages/batches", json={}) as reply:
            assert (reply.status, (await reply.json())["error"]["type"]) == (404, "not_found_error")
        async with http.post(f"{rig.url}/v1beta/models/g:embedContent", json={}) as reply:
            assert (reply.status, (await reply.json())["error"]["status"]) == (404, "NOT_FOUND")
    assert turns(rig) == []


async def test_models_are_listed(rig: Rig) -> None:
    assert [m.id async for m in client(rig).models.list()] == ["scripted"]
    assert (await client(rig).models.retrieve("gpt-x")).id == "gpt-x"


async def test_raw_logprobs_refuse_to_start(tiny: ModelFiles, tmp_path: Path) -> None:
    with pytest.raises(EngineMismatch, match="processed_logprobs"):
        async with rigged(tiny, tmp_path, ScriptedEngine(tiny, raw_logprobs=True)):
            pass


async def test_a_base_url_is_refused_where_keys_are_compulsory(tiny: ModelFiles, tmp_path: Path) -> None:
    async with rigged(tiny, tmp_path, open_access=False, token="secret") as rig:
        async with aiohttp.ClientSession() as http, http.get(f"{rig.url}/v1/models") as reply:
            assert reply.status == 407
        headers = {"x-harnesstap-token": "secret", "x-harnesstap-session": "named"}
        rig.engine.say("hi")
        await client(rig).chat.completions.create(model="m", messages=[USER], extra_headers=headers)
        assert [s.name for s in rig.reader.sessions()] == ["named"]


# What broke an earlier gateway, each a kind of its own.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "garbage",
    [
        b'{"error":{"code":"rate_limit","message":"m"}}',
        b'{"error":"boom"}',
        b"{broken",
        b"<html>",
        b'{"choices":[1]}',
        b"[]",
        *(b'{"error":{"code":%d,"message":"m"}}' % code for code in (0, 204, 99999)),
        *(
            b'{"choices":[{"token_ids":%s,"logprobs":{"token_logprobs":[%s]},"finish_reason":"stop"}]}' % odd
            for odd in (
                (b"[-1]", b"-1"),
                (b'["a"]', b"-1"),
                (b"[1.5]", b"-1"),
                (b"[4294967296]", b"-1"),
                (b"[5]", b'"x"'),
            )
        ),
    ],
)
async def test_an_engine_that_talks_nonsense_fails_the_turn_and_never_hangs(
    rig: Rig, garbage: bytes, stream: bool
) -> None:
    rig.engine.scripts.append(Script([[1]], garbage=garbage))
    body = {"model": "m", "messages": [USER], "stream": stream}
    url = f"{rig.url}/v1/chat/completions"
    async with asyncio.timeout(10), aiohttp.ClientSession() as http, http.post(url, json=body) as reply:
        assert reply.status >= 500 or b'"error"' in await reply.read()
    [turn] = turns(rig)
    assert turn.status == "failed"
    rig.engine.say("fine")
    assert (await client(rig).chat.completions.create(model="m", messages=[USER])).choices[0].message.content == "fine"


async def test_a_harness_that_leaves_is_no_fault_in_the_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    body = json.dumps({"model": "m", "messages": [USER], "stream": True}).encode()

    async def wait(_: int) -> None:
        await asyncio.sleep(0.01)

    for number in range(4):
        rig.engine.say("some words to be written to nobody, many of them", before=wait)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(rig.url.rpartition(":")[2]))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await reader.read(300)
        await asyncio.sleep(number * 0.02)
        writer.transport.abort()
        await asyncio.sleep(0.2)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_the_same_call_made_twice_at_once_is_no_retry(rig: Rig) -> None:
    both = asyncio.Event()

    async def wait(_: int) -> None:
        if len(rig.engine.requests) == 2:
            both.set()
        await both.wait()

    for text in ("one", "two"):
        rig.engine.say(text, before=wait)
    run: Any = {"messages": [USER], "extra_headers": {"session-id": "s"}}
    replies = await asyncio.gather(*(client(rig).chat.completions.create(model="m", **run) for _ in range(2)))
    assert sorted(str(reply.choices[0].message.content) for reply in replies) == ["one", "two"]
    assert [turn.retry_of for turn in turns(rig)] == [None, None]


async def test_a_turn_that_is_left_by_all_while_it_is_joined_is_sampled_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    async def wait(_: int) -> None:
        asked.set()
        await gate.wait()

    rig.engine.say("never heard", before=wait)
    rig.engine.say("anew")
    begin = Calls._begin

    async def left_meanwhile(self: Calls, request: Request) -> LiveTurn:
        monkeypatch.undo()
        turn = await begin(self, request)
        await asked.wait()
        turn.drop()
        await asyncio.sleep(0.05)
        return turn

    monkeypatch.setattr(Calls, "_begin", left_meanwhile)
    run: Any = {"messages": [USER], "extra_headers": {"session-id": "s"}}
    reply = await client(rig).chat.completions.create(model="m", **run)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("anew", "stop")
    assert [(turn.status, turn.retry_of) for turn in turns(rig)] == [("aborted", None), ("complete", turns(rig)[0].id)]


async def test_a_fault_in_mid_reply_breaks_the_connection_off(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second response, the error's, would be bytes in the middle of the first."""

    def fail(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(chat_stream.Emitter, "delta", fail)
    rig.engine.say("some words")
    body = json.dumps({"model": "m", "messages": [USER], "stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(rig.url.rpartition(":")[2]))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    received = b""
    with suppress(ConnectionError):
        while chunk := await reader.read(65536):
            received += chunk
    writer.close()
    assert received.count(b"HTTP/1.1") == 1


async def test_a_reply_that_cannot_be_recorded_is_no_reply(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import Future

    def full(*_: object) -> Future[None]:
        failed: Future[None] = Future()
        failed.set_exception(OSError("disk full"))
        return failed

    monkeypatch.setattr("replay.writer.Recorder.finish_turn", full)
    rig.engine.say("lost")
    with pytest.raises(openai.InternalServerError, match="could not be recorded"):
        async with asyncio.timeout(10):
            await client(rig).chat.completions.create(model="m", messages=[USER])


async def test_a_completion_that_somebody_aborted_is_no_reply(rig: Rig) -> None:
    rig.engine.say("half a", end=None, finish="abort")
    with pytest.raises(openai.InternalServerError, match="broke the completion off"):
        await client(rig).chat.completions.create(model="m", messages=[USER])
    [turn] = turns(rig)
    assert (turn.status, turn.n_sampled > 0) == ("failed", True)


async def test_a_client_that_leaves_while_its_turn_is_opened_leaves_no_open_row(rig: Rig) -> None:
    rig.engine.say("for nobody", before=lambda _: asyncio.sleep(3600))
    with rig.store.write():  # the writer has to wait
        body = {"model": "m", "messages": [USER]}
        with pytest.raises(TimeoutError):
            async with aiohttp.ClientSession() as http, asyncio.timeout(0.5):
                await http.post(f"{rig.url}/v1/chat/completions", json=body)
    for _ in range(500):
        if [turn.status for turn in turns(rig)] == ["aborted"]:
            break
        await asyncio.sleep(0.01)
    assert [turn.status for turn in turns(rig)] == ["aborted"]


async def test_an_engine_that_came_back_as_another_is_asked_again(rig: Rig) -> None:
    rig.engine.say("old")
    await client(rig).chat.completions.create(model="m", messages=[USER])
    rig.engine.name = "renamed"
    rig.engine.say("refused")
    with pytest.raises(openai.NotFoundError):
        await client(rig).chat.completions.create(model="m", messages=[USER])
    rig.engine.say("new")
    reply = await client(rig).chat.completions.create(model="m", messages=[USER])
    assert reply.choices[0].message.content == "new"


async def test_runs_that_say_the_same_continue_each_their_own_turn(rig: Rig) -> None:
    """Two runs of one task under no name, with the same first call: the ids of the calls tell them apart."""
    firsts = []
    for _ in range(2):
        rig.engine.say(CALL)
        reply = await client(rig).chat.completions.create(model="m", messages=[USER], tools=[BASH])
        firsts.append(reply.choices[0].message)
    for number, message in enumerate(firsts):
        assert message.tool_calls
        echoed: Any = message.to_dict()
        result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": f"result {number}"}
        rig.engine.say("done")
        await client(rig).chat.completions.create(model="m", messages=[USER, echoed, result], tools=[BASH])
    one, two, after_one, after_two = turns(rig)
    assert (after_one.parent_id, after_two.parent_id) == (one.id, two.id)
    assert (after_one.session_id, after_two.session_id) == (one.session_id, two.session_id)


async def test_a_title_call_at_the_same_moment_is_no_main_turn(rig: Rig) -> None:
    headers = {"session-id": "s"}
    title: Any = [{"role": "user", "content": "a title for: list the files"}]
    rig.engine.say("one")
    rig.engine.say("two")
    await asyncio.gather(
        client(rig).chat.completions.create(model="m", messages=[USER], tools=[BASH], extra_headers=headers),
        client(rig).chat.completions.create(model="m", messages=title, extra_headers=headers),
    )
    by_tools = {bool(rig.reader.request(turn).get("tools")): turn.purpose for turn in turns(rig)}
    assert by_tools[True] == "main"


async def test_odd_but_legal_requests(rig: Rig) -> None:
    deep: Any = {"type": "object"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"a": deep}}
    for schema in (deep, {"type": "integer", "maximum": 2**70}):
        rig.engine.say("fine")
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        body = json.dumps({"model": "m", "messages": [USER], "tools": [tool]})
        headers = {"content-type": "application/json", "x-stainless-retry-count": "²", "x-meta": "m" * 20_000}
        url = f"{rig.url}/v1/chat/completions"
        async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as reply:
            assert reply.status == 200, await reply.text()


def _deflate(data: bytes) -> bytes:
    return zlib.compress(data)


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", _deflate), ("br", brotli.compress), ("zstd", zstandard.compress)],
)
async def test_compressed_bodies(rig: Rig, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    plain = json.dumps({"model": "m", "messages": [USER]}).encode()
    headers = {"content-type": "application/json", "content-encoding": encoding}
    url = f"{rig.url}/v1/chat/completions"
    rig.engine.say("plain")
    rig.engine.say("packed")
    async with aiohttp.ClientSession() as http:
        async with http.post(url, data=plain, headers={"content-type": "application/json"}) as reply:
            assert reply.status == 200
        async with http.post(url, data=pack(plain), headers=headers) as reply:
            assert reply.status == 200, await reply.text()
        one, two = turns(rig)
        assert rig.reader.request(one) == rig.reader.request(two)
        assert rig.reader.prompt_ids(one) == rig.reader.prompt_ids(two)
        async with http.post(url, data=pack(plain)[:-9] + b"corrupted", headers=headers) as reply:
            assert reply.status == 400, await reply.text()
        async with http.post(url, data=pack(b" " * (65 << 20)), headers=headers) as reply:
            assert reply.status == 413, await reply.text()
    assert len(turns(rig)) == 2


async def test_a_turn_says_what_it_was_sampled_from(rig: Rig, tiny: ModelFiles) -> None:
    """Weights, template, parameters asked and sent: what a trainer needs to compute the same distribution."""
    for version in ("7", "8"):
        rig.engine.weight_version = version
        rig.engine.say("hi")
        await client(rig).chat.completions.create(model="m", messages=[USER], temperature=0.5, seed=3, max_tokens=9)
    for turn, version, request in zip(turns(rig), ("7", "8"), rig.engine.requests, strict=True):
        assert (turn.weight_version, turn.template_hash) == (version, tiny.template_hash)
        assert turn.sampling_asked == {"temperature": 0.5, "seed": 3, "max_tokens": 9}
        assert turn.sampling_sent.items() >= {"temperature": 0.5, "top_p": 1.0, "top_k": 0, "seed": 3}.items()
        assert turn.sampling_sent == {name: request[name] for name in turn.sampling_sent}
