"""Sessions of several turns on a real vLLM, token by token: tools, also in parallel, reasoning, a limit, a stop string.

The model knows one session by heart (:mod:`tests.e2e.memorised`), so what happens in it is known. Asked at a higher
temperature it says other things; then the same must hold of whatever it says.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio
import torch
from transformers import AutoModelForCausalLM

from addons.config import GatewayConfig
from addons.conversation import Conversation, Message
from addons.engine import Engine
from addons.model import ModelFiles
from addons.prompts import Prompts, ReasoningPolicy
from addons.service import Service, ServiceOptions
from replay.reader import Reader
from replay.schema import Turn
from replay.store import Store
from tests.e2e import memorised
from tests.e2e.memorised import LINES, SYSTEM, WEATHER, Line
from tests.e2e.wiretap import Completion, Wiretap

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return memorised.make(tmp_path_factory.mktemp("memorised"))


@pytest.fixture(scope="module")
def vllm(model: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with memorised.served(model, tmp_path_factory.mktemp("vllm")) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wiretap(vllm: str) -> AsyncIterator[Wiretap]:
    async for running in Wiretap(vllm).run():
        yield running


@dataclass
class Played:
    """A session that was played, as the record and as the witness before vLLM have it."""

    turns: list[Turn]
    stored: list[tuple[list[int], list[int], list[float]]]
    """Prompt ids, sampled ids and logprobs of each turn."""
    seen: list[Completion]


@asynccontextmanager
async def gateway(wiretap: Wiretap, folder: Path, reasoning: ReasoningPolicy) -> AsyncIterator[tuple[str, str]]:
    """The address of a gateway over the tapped vLLM, and its store."""
    store = f"sqlite:///{folder / 'record.db'}"
    service = Service(ServiceOptions(engine=wiretap.url, store=store, config=GatewayConfig(reasoning=reasoning)))
    port = await service.start()
    try:
        yield f"http://127.0.0.1:{port}", store
    finally:
        await service.stop()


async def play(
    wiretap: Wiretap, folder: Path, *, temperature: float = 0, stream: bool = False, reasoning: ReasoningPolicy = "keep"
) -> Played:
    del wiretap.completions[:]
    async with gateway(wiretap, folder, reasoning) as (url, store), aiohttp.ClientSession() as http:
        messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM.content}]
        for line in LINES:
            called = messages[-1].get("tool_calls") or []
            messages += [{"role": "tool", "tool_call_id": c["id"], "content": f"sun in {city(c)}"} for c in called]
            if line.ask or not called:
                messages.append({"role": "user", "content": line.ask or "Well?"})
            messages.append(await ask(http, url, messages, line, temperature, stream))
        with Store.open(store) as opened:
            reader = Reader(opened)
            [session] = reader.sessions()
            turns = reader.turns(session)
            stored = [(reader.prompt_ids(turn), *reader.sampled(turn)) for turn in turns]
    return Played(list(turns), stored, list(wiretap.completions))


def city(call: dict[str, Any]) -> str:
    try:
        return str(orjson.loads(call["function"]["arguments"])["city"])
    except (ValueError, KeyError, TypeError):
        return "?"


async def ask(
    http: aiohttp.ClientSession, url: str, messages: list[dict[str, Any]], line: Line, temperature: float, stream: bool
) -> dict[str, Any]:
    """One call of Chat Completions; the reply as a harness puts it into its history: without the reasoning."""
    tool = {"name": WEATHER.name, "description": WEATHER.description, "parameters": WEATHER.parameters}
    body = {
        "model": "any", "messages": messages, "tools": [{"type": "function", "function": tool}], "stream": stream,
        "temperature": temperature, "max_tokens": line.cut or 100, "stop": line.stop, "seed": 1,
    }  # fmt: skip
    async with http.post(f"{url}/v1/chat/completions", data=orjson.dumps(body)) as reply:
        raw = await reply.read()
        assert reply.status == 200, raw
    if not stream:
        said = orjson.loads(raw)["choices"][0]["message"]
        return {key: said[key] for key in ("role", "content", "tool_calls") if said.get(key)} | {"role": "assistant"}
    said = {"role": "assistant", "content": "", "tool_calls": []}
    for event in raw.split(b"\n\n"):
        if not event.startswith(b"data: {"):
            continue
        for choice in orjson.loads(event[6:])["choices"]:
            said["content"] += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls") or []:
                if len(said["tool_calls"]) == piece["index"]:
                    said["tool_calls"].append(piece)
                else:
                    made = said["tool_calls"][piece["index"]]["function"]
                    made["arguments"] += piece["function"]["arguments"]
    return {key: value for key, value in said.items() if value}


def check(model: ModelFiles, played: Played, temperature: float = 1) -> None:
    """What is stored is what vLLM was sent, saw and sampled, and what the weights say of it at that temperature."""
    assert [turn.status for turn in played.turns] == ["complete"] * len(LINES)
    assert len(played.seen) == len(played.stored)
    for completion, turn, (prompt, ids, _) in zip(played.seen, played.turns, played.stored, strict=True):
        assert completion.prompt == prompt
        # After a stop string the gateway hangs up, and the witness may have heard more than it.
        assert (completion.ids[: len(ids)] if turn.finish == "stop_sequence" else completion.ids) == ids
    assert [c.prompt_as_seen for c in played.seen] == [prompt for prompt, _, _ in played.stored]
    policy = AutoModelForCausalLM.from_pretrained(model.path, dtype=torch.float32)
    for prompt, ids, logprobs in played.stored:
        with torch.no_grad():
            logits = policy(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        again = (logits / temperature).log_softmax(-1).gather(1, torch.tensor([ids]).T)[:, 0].tolist()
        assert again == pytest.approx(logprobs, abs=1e-3)


def check_one_sequence(played: Played) -> None:
    assert [turn.parent_id for turn in played.turns] == [None, *(turn.id for turn in played.turns[:-1])]
    for (prompt, ids, _), (longer, _, _) in itertools.pairwise(played.stored):
        assert longer[: len(prompt) + len(ids)] == prompt + ids


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_the_session_it_knows(wiretap: Wiretap, model: ModelFiles, stream: bool, tmp_path: Path) -> None:
    played = await play(wiretap, tmp_path, stream=stream)
    check(model, played)
    check_one_sequence(played)
    assert played.stored[-1][0] + played.stored[-1][1] == memorised.lesson(model)[0]
    assert [t.finish for t in played.turns] == [*["tool_calls", "stop"] * 2, "length", "stop_sequence", "stop"]
    cut, stopped = (str(model.tokenizer.decode(after(played, turn))) for turn in (4, 5))
    assert cut.startswith("\n</think>\n\n<|im_end|>\n<|im_start|>user\nGo on.")
    assert stopped.startswith("<|im_end|>\n<|im_start|>user\nThanks.")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_whatever_it_says(wiretap: Wiretap, model: ModelFiles, stream: bool, tmp_path: Path) -> None:
    played = await play(wiretap, tmp_path, temperature=1.5, stream=stream)
    check(model, played, temperature=1.5)
    check_one_sequence(played)


async def test_the_template_decides_what_becomes_of_reasoning(
    wiretap: Wiretap, model: ModelFiles, tmp_path: Path
) -> None:
    """Then a question after reasoning is asked anew, as the template has it: a sequence of its own."""
    played = await play(wiretap, tmp_path, reasoning="template")
    check(model, played)
    roots = [index for index, turn in enumerate(played.turns) if turn.parent_id is None]
    assert roots[:2] == [0, 2]
    assert {played.turns[index].drift_reason for index in roots[1:]} == {"template"}
    assert "<think>" not in str(model.tokenizer.decode(played.stored[2][0]))


async def test_the_server_shows_what_it_serves(vllm: str, model: ModelFiles) -> None:
    """As `trainer serve` starts it; and it writes a conversation as we do."""
    async with aiohttp.ClientSession() as http:
        engine = Engine(vllm, http)
        assert await engine.chat_template() == model.template
        facts = await engine.facts()
        said = [Message("user", "Hello?"), Message("assistant", "Yes."), Message("user", "Good.")]
        ours = Prompts(model).first(Conversation(tuple(said)))
        assert await engine.tokenize_chat(facts, [{"role": m.role, "content": m.content} for m in said]) == ours


def after(played: Played, turn: int) -> list[int]:
    """The ids between what turn `turn` sampled and what the next one did."""
    prompt, ids, _ = played.stored[turn]
    return played.stored[turn + 1][0][len(prompt) + len(ids) :]
