"""Calls that continue an earlier reply by its id, from the record: message threads, and stored responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from openai import AsyncOpenAI

from addons.model import ModelFiles
from tests.addons.test_gateway import CALL, turns
from tests.addons.test_gateway_dialects import SCHEMA, claude, gpt, one_chain
from tests.conftest import Rig, rigged

TOOL = {"name": "bash", "input_schema": SCHEMA}
GO: dict[str, Any] = {"role": "user", "content": "go"}
CREATE: dict[str, Any] = {
    "model": "m", "max_tokens": 100, "system": "s", "tools": [TOOL], "messages": [GO], "thread": {"type": "create"},
}  # fmt: skip


def continuing(reply: Any, *new: Any, **more: Any) -> dict[str, Any]:
    """As Pi does it: neither system prompt nor tools nor what was said before."""
    thread = {"type": "continue", "previous_message_id": reply.id}
    return {"model": "m", "max_tokens": 100, "messages": list(new), "thread": thread, **more}


def result(reply: Any) -> dict[str, Any]:
    use = next(block for block in reply.content if block.type == "tool_use")
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "a.txt"}]}


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_thread_is_one_sequence(rig: Rig, restarted: bool) -> None:
    rig.engine.say(f"<think>\nhm\n</think>\n\nI look.\n{CALL}")
    first = await claude(rig).beta.messages.create(**CREATE)
    if restarted:
        rig.service.forget()
    rig.engine.say("done")
    second = await claude(rig).beta.messages.create(**continuing(first, result(first)))
    assert [block.type for block in second.content] == ["text"]
    one_chain(rig)
    assert second.usage.input_tokens == turns(rig)[1].prompt_length
    if restarted:
        rig.service.forget()
    rig.engine.say("again")
    third = await claude(rig).beta.messages.create(**continuing(second, {"role": "user", "content": "more"}))
    last = turns(rig)[2]
    assert last.parent_id == turns(rig)[1].id
    assert [m["role"] for m in rig.reader.messages(last)] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert rig.reader.request(last)["messages"] == [{"role": "user", "content": "more"}], "as it was sent"
    # A reply can be continued twice: the record branches.
    rig.engine.say("other")
    await claude(rig).beta.messages.create(**continuing(second, {"role": "user", "content": "less"}))
    assert turns(rig)[3].parent_id == turns(rig)[1].id
    counted = await claude(rig).beta.messages.count_tokens(
        model="m", messages=[{"role": "user", "content": "more"}],
        extra_body={"thread": continuing(third)["thread"]},
    )  # fmt: skip
    assert counted.input_tokens > last.prompt_length


@pytest.mark.parametrize("restarted", [False, True])
async def test_half_a_character_is_no_reason_to_begin_anew(rig: Rig, restarted: bool) -> None:
    """JavaScript cuts strings inside one, and says so in JSON."""
    async with aiohttp.ClientSession(raise_for_status=True) as http:
        ask, url = b'{"model": "m", "input": "\\ud83d cut"}', f"{rig.url}/v1/responses"
        rig.engine.say("one")
        async with http.post(url, data=ask) as reply:
            first = await reply.json()
    if restarted:
        rig.service.forget()
    rig.engine.say("two")
    await gpt(rig).responses.create(model="m", input="more", previous_response_id=first["id"])
    one_chain(rig)


async def test_the_sdks_own_thread(rig: Rig) -> None:
    thread = claude(rig).beta.messages.thread(model="m", max_tokens=100, system="s")
    for text in ("one", "two", "three"):
        rig.engine.say(text)
        reply = await thread.send({"role": "user", "content": f"say {text}"})
        assert reply.content[0].text == text  # type: ignore[union-attr]
    assert [rig.reader.request(turn)["thread"]["type"] for turn in turns(rig)] == ["create", "continue", "continue"]
    assert [turn.parent_id for turn in turns(rig)] == [None, turns(rig)[0].id, turns(rig)[1].id]


async def test_a_reply_that_is_not_there_has_the_harness_send_all_again(rig: Rig) -> None:
    body = dict(CREATE)
    body["thread"] = {"type": "continue", "previous_message_id": "msg_gone"}
    with pytest.raises(anthropic.NotFoundError, match="msg_gone") as caught:
        await claude(rig).beta.messages.create(**body)
    described = caught.value.body["error"]  # type: ignore[index]
    assert (described["type"], described["details"]) == ("not_found_error", {"error_code": "thread_not_found"})
    assert turns(rig) == []


async def test_a_thread_keeps_its_system_prompt_and_tools(rig: Rig) -> None:
    rig.engine.say("one")
    first = await claude(rig).beta.messages.create(**CREATE)
    rig.engine.say("two")
    await claude(rig).beta.messages.create(**continuing(first, GO, system="s", tools=[TOOL]))
    with pytest.raises(anthropic.BadRequestError, match="system, tools") as caught:
        await claude(rig).beta.messages.create(**continuing(first, GO, system="other", tools=[]))
    assert caught.value.body["error"]["details"] == {"error_code": "thread_fingerprint_mismatch"}  # type: ignore[index]


@pytest.mark.parametrize("dialect", ["messages", "responses"])
async def test_a_session_sees_its_own_only(tiny: ModelFiles, tmp_path: Path, dialect: str) -> None:
    async with rigged(tiny, tmp_path, token="t") as rig, aiohttp.ClientSession(raise_for_status=True) as http:
        url = f"{rig.url}/v1/{dialect}"

        async def ask(session: str, body: dict[str, Any]) -> Any:
            headers = {"x-harnesstap-token": "t", "x-harnesstap-session": session}
            async with http.post(url, json=body, headers=headers) as reply:
                return await reply.json()

        rig.engine.say("mine")
        first = await ask("a", CREATE if dialect == "messages" else {"model": "m", "input": "go"})
        again: dict[str, Any] = {"model": "m", "input": "go", "previous_response_id": first["id"]}
        if dialect == "messages":
            again = {**CREATE, "thread": {"type": "continue", "previous_message_id": first["id"]}}
        for forget in (False, True):
            if forget:
                rig.service.forget()
            with pytest.raises(aiohttp.ClientResponseError, match=r"40[04]"):
                await ask("b", again)
        rig.engine.say("more")
        assert (await ask("a", again))["id"] != first["id"]


async def test_a_turn_of_another_dialect_or_that_failed_is_none(rig: Rig) -> None:
    rig.engine.say("one")
    chat = await AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="k", max_retries=0).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "go"}]
    )
    rig.engine.say("half of", die_after=1)
    with pytest.raises(openai.OpenAIError):
        async for _ in await gpt(rig).responses.create(model="m", input="go", stream=True):
            pass
    failed = turns(rig)[-1]
    assert failed.status == "failed"
    for name in (chat.id, failed.reply_id):
        with pytest.raises(openai.BadRequestError, match="not found"):
            await gpt(rig).responses.create(model="m", input="x", previous_response_id=name)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_stored_response_is_there_again(rig: Rig, restarted: bool) -> None:
    tools: list[Any] = [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}]
    rig.engine.say(f"I look.\n{CALL}")
    first = await gpt(rig).responses.create(model="m", input="go", tools=tools, metadata={"k": "v"})
    call = next(item for item in first.output if item.type == "function_call")
    if restarted:
        rig.service.forget()
    assert (await gpt(rig).responses.retrieve(first.id)).to_dict() == first.to_dict()
    rig.engine.say("done")
    reference: Any = [
        GO, {"type": "item_reference", "id": call.id},
        {"type": "function_call_output", "call_id": call.call_id, "output": "a.txt"},
    ]  # fmt: skip
    second = await gpt(rig).responses.create(model="m", input=reference, tools=tools, store=False)
    assert second.output_text == "done"
    for name in (second.id, "resp_gone"):  # it was not to be stored; it never was
        with pytest.raises(openai.NotFoundError, match=f"Response with id '{name}' not found"):
            await gpt(rig).responses.retrieve(name)
    with pytest.raises(openai.NotFoundError, match="Unknown request URL: DELETE"):
        await gpt(rig).responses.delete(first.id)
    assert len(turns(rig)) == 2


async def test_a_conversation_is_compacted_at_its_own_route(rig: Rig) -> None:
    tools: list[Any] = [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}]
    rig.engine.say("one")
    first = await gpt(rig).responses.create(model="m", input="go", tools=tools)
    rig.engine.say(f"So far: one. {CALL}")
    compacted = await gpt(rig).responses.compact(model="m", previous_response_id=first.id, extra_body={"tools": tools})
    assert (compacted.object, [item.type for item in compacted.output]) == (
        "response.compaction", ["message", "compaction"],
    )  # fmt: skip
    asked, summary = turns(rig)
    assert (summary.purpose, summary.parent_id, summary.finish) == ("compaction", asked.id, "stop")
    assert compacted.usage.output_tokens == summary.n_sampled
    rig.engine.say("on it")
    again: Any = [item.to_dict() for item in compacted.output]
    await gpt(rig).responses.create(model="m", input=[*again, {"role": "user", "content": "go on"}], tools=tools)
    last = turns(rig)[2]
    told = [m["content"] for m in rig.reader.messages(last)]
    assert told[0] == "go"
    assert told[1].endswith(f"So far: one. {CALL}"), "calls in a summary are text"
    assert told[2] == "go on"
    assert (last.purpose, last.parent_id) == ("main", None)
