"""A real vLLM on a vision model behind the proxy: images of every dialect, in a user's words and in a tool's.

The conversation is the same in each dialect: a user shows an image, the model has called a tool, and the tool answers
with an image; Anthropic's user puts one beside that. Then the model replies, and the user shows one more.
"""

from __future__ import annotations

import base64
import io
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from PIL import Image

from replay.reader import Reader
from replay.store import Store
from tests.e2e.wiretap import Wiretap
from tests.proxy import Proxy, mitmdump
from trainer import serve

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]
TOKENS = 6


@pytest.fixture(scope="module")
def vision_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real vLLM that serves a tiny vision model, made here."""
    folder = tmp_path_factory.mktemp("vision")
    subprocess.run([sys.executable, "-m", "tests.e2e.tiny_vision", str(folder / "model")], cwd=ROOT, check=True)
    extra = ("--max-num-seqs", "8", "--max-model-len", "2048")
    options = serve.ServeOptions(model=str(folder / "model"), kv_cache_gib=1, extra=extra)
    with serve.running(options, log=folder / "vllm.log") as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wiretap(vision_vllm: str) -> AsyncIterator[Wiretap]:
    async for running in Wiretap(vision_vllm).run():
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(wiretap: Wiretap, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    async with mitmdump(tmp_path_factory.mktemp("proxy"), wiretap.url, tap_max_tokens=str(TOKENS)) as running:
        yield running


def picture(color: str, width: int = 20, height: int = 20, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), color).save(file, form)
    return file.getvalue()


RED, BLUE, WIDE, JPEG = picture("red"), picture("blue"), picture("green", 90, 40), picture("red", form="JPEG")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def kind(data: bytes) -> str:
    return "image/jpeg" if data == JPEG else "image/png"


def data_url(data: bytes) -> str:
    return f"data:{kind(data)};base64,{b64(data)}"


Bodies = Callable[[bytes, bytes, "str | None"], dict[str, Any]]
"""The request with the user's image and the tool's; with a reply, what follows it."""


def chat(first: bytes, found: bytes, reply: str | None) -> dict[str, Any]:
    def image(data: bytes) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": data_url(data)}}

    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "see "}, image(first), {"type": "text", "text": "?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [image(found)]},
    ]
    if reply is not None:
        said += [{"role": "assistant", "content": reply}, {"role": "user", "content": [image(WIDE)]}]
    return {"model": "m", "messages": said, "temperature": 0, "stream": True}


def anthropic(first: bytes, found: bytes, reply: str | None) -> dict[str, Any]:
    def image(data: bytes) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "media_type": kind(data), "data": b64(data)}}

    answer = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "found"}, image(found)],
    }
    said: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "see"}, image(first)]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
        {"role": "user", "content": [answer, image(BLUE), {"type": "text", "text": "and this?"}]},
    ]
    if reply is not None:
        said += [{"role": "assistant", "content": reply}, {"role": "user", "content": [image(WIDE)]}]
    return {"model": "m", "max_tokens": TOKENS, "messages": said, "temperature": 0, "stream": True}


def responses(first: bytes, found: bytes, reply: str | None) -> dict[str, Any]:
    def image(data: bytes) -> dict[str, Any]:
        return {"type": "input_image", "image_url": data_url(data)}

    said: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "see "}, image(first)]},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": [image(found)]},
    ]
    if reply is not None:
        said += [{"role": "assistant", "content": reply}, {"role": "user", "content": [image(WIDE)]}]
    return {"model": "m", "input": said, "temperature": 0, "stream": True}


def gemini(first: bytes, found: bytes, reply: str | None) -> dict[str, Any]:
    def image(data: bytes) -> dict[str, Any]:
        return {"inlineData": {"mimeType": kind(data), "data": b64(data)}}

    answer = {"functionResponse": {"name": "look", "response": {"output": "found"}, "parts": [image(found)]}}
    said: list[dict[str, Any]] = [
        {"role": "user", "parts": [{"text": "see "}, image(first)]},
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
        {"role": "user", "parts": [answer]},
    ]
    if reply is not None:
        said += [{"role": "model", "parts": [{"text": reply}]}, {"role": "user", "parts": [image(WIDE)]}]
    return {"contents": said, "generationConfig": {"temperature": 0}}


def chat_text(event: dict[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])


def gemini_text(event: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for one in event["candidates"] for part in one["content"].get("parts", ()))


DIALECTS = {
    "chat": ("https://api.openai.com/v1/chat/completions", chat, chat_text, 2),
    "messages": ("https://api.anthropic.com/v1/messages", anthropic, lambda e: e.get("delta", {}).get("text", ""), 3),
    "responses": (
        "https://api.openai.com/v1/responses", responses,
        lambda e: e["delta"] if e["type"] == "response.output_text.delta" else "", 2,
    ),
    "gemini": (
        "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse",
        gemini, gemini_text, 2,
    ),
}  # fmt: skip


async def ask(proxy: Proxy, session: str, url: str, body: dict[str, Any], text: Callable[[Any], str]) -> str:
    env = proxy.environment(session)
    trust = ssl.create_default_context(cafile=env["SSL_CERT_FILE"])
    async with httpx.AsyncClient(proxy=env["HTTPS_PROXY"], verify=trust, timeout=60) as http:
        reply = await http.post(url, json=body)
    assert reply.status_code == 200, reply.text
    events = [line[5:].strip() for line in reply.text.splitlines() if line.startswith("data:")]
    return "".join(text(json.loads(event)) for event in events if event != "[DONE]")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_images_reach_the_model_and_stay_one_sequence(proxy: Proxy, wiretap: Wiretap, dialect: str) -> None:
    url, bodies, text, shown = DIALECTS[dialect]
    del wiretap.completions[:]
    reply = await ask(proxy, dialect, url, bodies(RED, JPEG, None), text)
    await ask(proxy, dialect, url, bodies(RED, JPEG, reply), text)
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        turns = reader.turns(reader.session(dialect))
        assert [turn.parent_id for turn in turns] == [None, turns[0].id], [turn.drift_detail for turn in turns]
        for turn, witness in zip(turns, wiretap.completions, strict=True):
            assert reader.prompt_ids(turn) == witness.prompt_as_seen != witness.prompt
            ids, logprobs = reader.sampled(turn)
            assert ids == witness.ids
            assert logprobs == pytest.approx(witness.logprobs, abs=1e-6)
            assert (turn.status, turn.n_sampled, turn.ignored_fields) == ("complete", TOKENS, [])
            assert turn.untrainable is not None
        files = [reader.image(image["sha256"]) for image in reader.images(turns[1])]
        assert files == [RED, JPEG, BLUE, WIDE][:shown] + ([WIDE] if shown < 4 else [])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_another_image_another_distribution(proxy: Proxy, wiretap: Wiretap, dialect: str) -> None:
    url, bodies, text, _ = DIALECTS[dialect]
    del wiretap.completions[:]
    for number, images in enumerate([(RED, RED), (RED, RED), (BLUE, RED), (RED, BLUE)]):
        await ask(proxy, f"{dialect}-{number}", url, bodies(*images, None), text)
    first, again, user, tool = [(one.ids, one.logprobs) for one in wiretap.completions]
    assert first[0] == again[0]
    assert first[1] == pytest.approx(again[1], abs=1e-4)
    for other in (user, tool):
        assert other[0] != first[0] or other[1] != pytest.approx(first[1], abs=1e-3)
    assert len({len(one.prompt_as_seen or ()) for one in wiretap.completions}) == 1


async def test_a_count_is_what_the_prompt_has(proxy: Proxy, wiretap: Wiretap) -> None:
    body = anthropic(RED, WIDE, None)
    env = proxy.environment("counted")
    trust = ssl.create_default_context(cafile=env["SSL_CERT_FILE"])
    async with httpx.AsyncClient(proxy=env["HTTPS_PROXY"], verify=trust, timeout=60) as http:
        url = "https://api.anthropic.com/v1/messages"
        counted = await http.post(url + "/count_tokens", json={k: body[k] for k in ("model", "messages")})
        replied = await http.post(url, json={**body, "stream": False})
    assert counted.json()["input_tokens"] == replied.json()["usage"]["input_tokens"]
    assert len(wiretap.completions[-1].prompt_as_seen or ()) == counted.json()["input_tokens"]


async def test_what_is_no_image_is_a_400(proxy: Proxy) -> None:
    env = proxy.environment("broken")
    trust = ssl.create_default_context(cafile=env["SSL_CERT_FILE"])
    async with httpx.AsyncClient(proxy=env["HTTPS_PROXY"], verify=trust, timeout=60) as http:
        reply = await http.post("https://api.anthropic.com/v1/messages", json=anthropic(b"hello", RED, None))
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert "Could not process image" in reply.json()["error"]["message"]
