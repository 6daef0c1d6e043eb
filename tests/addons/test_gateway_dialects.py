"""The other dialects through the gateway, each with its official SDK, over a scripted engine."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from google import genai
from google.genai import types
from openai import AsyncOpenAI

from addons.engine import EngineFacts
from addons.listings import listing
from addons.providers import classify
from tests.addons.test_gateway import CALL, turns
from tests.conftest import Rig

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SAID = [("words", "plain Grüße 🚀"), ("call", CALL), ("both", f"I look.\n{CALL}"), ("two calls", f"{CALL}\n{CALL}")]
IDS = [name for name, _ in SAID]
TEXTS = [text for _, text in SAID]


def claude(rig: Rig) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=rig.url, api_key="sk-nobody", max_retries=0)


def gpt(rig: Rig) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="sk-nobody", max_retries=0)


def gemini(rig: Rig) -> Any:
    options = types.HttpOptions(
        base_url=rig.url, api_version="v1beta", retry_options=types.HttpRetryOptions(attempts=1)
    )
    return genai.Client(api_key="nobody", http_options=options).aio


def commands(text: str) -> int:
    return text.count("<tool_call>")


def one_chain(rig: Rig) -> None:
    first, second = turns(rig)
    assert second.parent_id == first.id
    kept = rig.reader.prompt_ids(first) + rig.reader.sampled(first)[0]
    assert rig.reader.prompt_ids(second)[: len(kept)] == kept


@pytest.mark.parametrize("text", TEXTS, ids=IDS)
async def test_messages_streamed_is_whole(rig: Rig, text: str) -> None:
    ask: dict[str, Any] = {
        "model": "claude-opus-5", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}],
        "tools": [{"name": "bash", "input_schema": SCHEMA}],
    }  # fmt: skip
    rig.engine.say(text)
    whole = await claude(rig).messages.create(**ask)
    rig.engine.say(text)
    async with claude(rig).messages.stream(**ask) as stream:
        streamed = await stream.get_final_message()
    seen = [message.model_dump(exclude={"id"}) for message in (whole, streamed)]
    for message in seen:
        for block in message["content"]:
            block.pop("id", None)
            block.pop("parsed_output", None)
    assert seen[0] == seen[1]
    assert len([b for b in whole.content if b.type == "tool_use"]) == commands(text)
    assert whole.stop_reason == ("tool_use" if commands(text) else "end_turn")
    assert whole.usage.output_tokens == len(rig.reader.sampled(turns(rig)[0])[0])


async def test_messages_an_agent_loop_is_one_sequence(rig: Rig) -> None:
    ask: dict[str, Any] = {
        "model": "m", "max_tokens": 100, "system": [{"type": "text", "text": "s"}],
        "tools": [{"name": "bash", "input_schema": SCHEMA}],
    }  # fmt: skip
    messages: list[Any] = [{"role": "user", "content": "go"}]
    rig.engine.say(f"I look.\n{CALL}")
    reply = await claude(rig).messages.create(messages=messages, **ask)
    use = next(block for block in reply.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "a.txt"}]}
    messages += [
        {"role": "assistant", "content": [b.to_dict() for b in reply.content]},
        {"role": "user", "content": [result]},
    ]
    counted = await claude(rig).messages.count_tokens(
        model="m", system=ask["system"], tools=ask["tools"], messages=messages
    )
    rig.engine.say("done")
    async with claude(rig).messages.stream(messages=messages, **ask) as stream:
        last = await stream.get_final_message()
    one_chain(rig)
    assert last.usage.input_tokens == turns(rig)[1].prompt_length
    assert counted.input_tokens > 0


async def test_messages_errors_are_the_providers(rig: Rig) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        await claude(rig).messages.create(model="m", max_tokens=10, messages=[{"role": "wizard", "content": "x"}])  # type: ignore[list-item, typeddict-item]
    assert "wizard" in str(caught.value) or "messages.0.role" in str(caught.value)
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: [0-9]+ tokens > [0-9]+ maximum"):
        await claude(rig).messages.create(
            model="m", max_tokens=10, messages=[{"role": "user", "content": "word " * 40000}]
        )


async def test_messages_lists_models(rig: Rig) -> None:
    assert [m.id async for m in claude(rig).models.list()] == ["scripted"]


@pytest.mark.parametrize("text", TEXTS, ids=IDS)
async def test_responses_streamed_is_whole(rig: Rig, text: str) -> None:
    ask: dict[str, Any] = {
        "model": "gpt-5.2", "input": "go", "store": False,
        "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}],
    }  # fmt: skip
    rig.engine.say(text)
    whole = await gpt(rig).responses.create(**ask)
    rig.engine.say(text)
    async with gpt(rig).responses.stream(**ask) as stream:
        streamed = await stream.get_final_response()
    seen = [r.to_dict() for r in (whole, streamed)]
    for made in seen:
        for volatile in ("id", "created_at", "completed_at"):
            made.pop(volatile, None)
        for item in made["output"]:  # type: ignore[attr-defined]
            for volatile in ("id", "call_id", "parsed_arguments"):
                item.pop(volatile, None)
            for part in item.get("content", ()):
                part.pop("parsed", None)
    assert seen[0]["output"] == seen[1]["output"]
    assert seen[0]["usage"] == seen[1]["usage"]
    assert [item.type for item in whole.output].count("function_call") == commands(text)


async def test_responses_continue_by_id_across_a_restart_of_memory(rig: Rig) -> None:
    rig.engine.say(CALL)
    tools: list[Any] = [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}]
    first = await gpt(rig).responses.create(model="m", input="go", tools=tools, instructions="be brief")
    call = first.output[0]
    assert call.type == "function_call"
    rig.service.forget()
    rig.engine.say("done")
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "a.txt"}
    second = await gpt(rig).responses.create(
        model="m", input=[output], previous_response_id=first.id, tools=tools, instructions="be brief"
    )
    assert second.output_text == "done"
    one_chain(rig)
    with pytest.raises(openai.BadRequestError) as caught:
        await gpt(rig).responses.create(model="m", input="x", previous_response_id="resp_unknown")
    assert caught.value.code == "previous_response_not_found"


def test_codex_keeps_its_own_models() -> None:
    """Codex's own list has its own shape; an empty one leaves it the prompts that it is built with."""
    facts = EngineFacts("m", "m", 1000, True)
    assert listing(classify("GET", "chatgpt.com", "/backend-api/codex/models"), facts) == {"models": []}


@pytest.mark.parametrize("text", TEXTS, ids=IDS)
async def test_gemini_streamed_is_whole(rig: Rig, text: str) -> None:
    declared = types.FunctionDeclaration(name="bash", parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declared])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    rig.engine.say(text)
    whole = await gemini(rig).models.generate_content(model="gemini-3-pro", contents="go", config=config)
    rig.engine.say(text)
    stream = await gemini(rig).models.generate_content_stream(model="gemini-3-pro", contents="go", config=config)
    chunks = [chunk async for chunk in stream]
    assert [c.candidates[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].candidates[0].finish_reason == whole.candidates[0].finish_reason == types.FinishReason.STOP
    parts = [p for c in chunks for p in (c.candidates[0].content.parts if c.candidates[0].content else None) or ()]
    said = "".join(p.text or "" for p in parts)
    assert said == "".join(p.text or "" for p in whole.candidates[0].content.parts)
    calls = [p.function_call.args for p in parts if p.function_call]
    assert calls == [p.function_call.args for p in whole.candidates[0].content.parts if p.function_call]
    assert len(calls) == commands(text)
    assert chunks[-1].usage_metadata == whole.usage_metadata


async def test_gemini_counts_and_lists(rig: Rig) -> None:
    counted = await gemini(rig).models.count_tokens(model="g", contents="list the files")
    rig.engine.say("ok")
    reply = await gemini(rig).models.generate_content(model="g", contents="list the files")
    assert counted.total_tokens == reply.usage_metadata.prompt_token_count
    assert [m.name async for m in await gemini(rig).models.list()] == ["models/scripted"]


@pytest.mark.parametrize(
    "arguments", [r'{"a": "\ud83d"}', '{"a": 123456789012345678901234567890}', f'{{"a": {"[" * 400}1{"]" * 400}}}']
)
@pytest.mark.parametrize("stream", [False, True])
async def test_sampled_arguments_that_are_just_legal_json(rig: Rig, arguments: str, stream: bool) -> None:
    f: dict[str, Any] = {"type": "object", "properties": {"a": {}}}
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    user = {"role": "user", "content": "go"}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": [user], "tools": [{"type": "function", "function": {"name": "f"}}]}),
        ("/v1/messages", {"messages": [user], "tools": [{"name": "f", "input_schema": f}], "max_tokens": 99}),
        ("/v1/responses", {"input": "go", "tools": [{"type": "function", "name": "f", "parameters": f}]}),
        (f"/v1beta/models/m:{method}", {"contents": [{"role": "user", "parts": [{"text": "go"}]}],
                                        "tools": [{"functionDeclarations": [{"name": "f"}]}]}),
    ]  # fmt: skip
    async with aiohttp.ClientSession() as http:
        for path, body in calls:
            rig.engine.say(f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>')
            told = body if "contents" in body else {**body, "model": "m", "stream": stream}
            async with http.post(rig.url + path, json=told) as reply:
                text = (await reply.text()).replace("\\", "")
                assert reply.status == 200, text
                assert arguments.partition(": ")[2].rstrip("}").replace("\\", "") in text, path


async def test_a_deep_schema_goes_to_the_engine_and_into_the_reply(rig: Rig) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"a": deep}}
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": deep}}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "go"}], "response_format": shape}),
        ("/v1/responses", {"input": "go", "tools": [{"type": "function", "name": "f", "parameters": deep}]}),
    ]
    async with aiohttp.ClientSession() as http:
        for path, body in calls:
            rig.engine.say("{}")
            async with http.post(rig.url + path, data=json.dumps({**body, "model": "m"})) as reply:
                assert reply.status == 200, await reply.text()
