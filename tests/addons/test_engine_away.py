"""A vLLM that is not there: each dialect's own 503, a turn that says so, and a start that is refused all the same where
nothing could ever work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from addons.replies import UnknownParser
from addons.service import Service, ServiceOptions
from replay.reader import Reader
from replay.store import Store
from tests.addons.kit import chatml
from tests.scripted_engine import ScriptedEngine

NOWHERE = "http://127.0.0.1:9"
USER = {"role": "user", "content": "hi"}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
CALLS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": [USER]}, "type", "server_error"),
    "responses": ("/v1/responses", {"model": "m", "input": "hi"}, "type", "server_error"),
    "messages": ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [USER]}, "type", "overloaded_error"),
    "gemini": ("/v1beta/models/g:generateContent", CONTENTS, "status", "UNAVAILABLE"),
}
"""Path, body, and how the error says that the provider is overloaded."""
BARE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
BARE += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def asked(dialect: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    path, body, *_ = CALLS[dialect]
    if dialect == "gemini":
        return path.replace("generateContent", "streamGenerateContent?alt=sse") if stream else path, body
    return path, {**body, "stream": stream}


async def post(port: int, path: str, body: dict[str, Any]) -> tuple[int, str | None, Any]:
    """Status, Retry-After and the error."""
    async with aiohttp.ClientSession() as http, http.post(f"http://127.0.0.1:{port}{path}", json=body) as reply:
        return reply.status, reply.headers.get("retry-after"), (await reply.json()).get("error")


def failures(store: str) -> list[tuple[str, dict[str, Any] | None]]:
    with Store.open(store) as opened:
        reader = Reader(opened)
        return [(turn.status, turn.error) for session in reader.sessions() for turn in reader.turns(session)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", CALLS)
async def test_no_vllm_is_the_dialects_503(tmp_path: Path, dialect: str, stream: bool) -> None:
    store = f"sqlite:///{tmp_path / 'record.db'}"
    service = Service(ServiceOptions(engine=NOWHERE, store=store))
    status, retry_after, error = await post(await service.start(), *asked(dialect, stream=stream))
    await service.stop()
    assert (status, retry_after) == (503, "5")
    assert error[CALLS[dialect][2]] == CALLS[dialect][3]
    assert f"vLLM at {NOWHERE} does not answer" in error["message"]
    [(kept, why)] = failures(store)
    assert kept == "failed"
    assert why is not None
    assert (why["kind"], why["status"]) == ("unavailable", 503)


async def test_a_vllm_that_comes_up_later_with_a_model_nobody_reads(tmp_path: Path) -> None:
    """Too late to refuse the start: the harness is told what can be chosen, and the turn is kept."""
    store = f"sqlite:///{tmp_path / 'record.db'}"
    service = Service(ServiceOptions(engine=NOWHERE, store=store))
    port = await service.start()
    async for engine in ScriptedEngine(chatml(tmp_path / "model", template=BARE)).run():
        assert service._calls is not None
        service._calls.backend.engine.url = engine.url
        status, retry_after, error = await post(port, *asked("chat", stream=False))
    await service.stop()
    assert (status, retry_after) == (503, "30")
    assert "shows no tool calls" in error["message"]
    assert "Choose one by name: qwen-xml, glm, hermes" in error["message"]
    assert [kept for kept, _ in failures(store)] == ["failed"]


@pytest.mark.parametrize(
    ("parser", "words"),
    [
        ("nonsense", "no parser 'nonsense'. Choose one of: qwen-xml, glm, hermes"),
        ("nowhere.json", "no response template in nowhere.json"),
    ],
)
async def test_an_unknown_parser_refuses_the_start_without_a_vllm(tmp_path: Path, parser: str, words: str) -> None:
    service = Service(ServiceOptions(engine=NOWHERE, store=f"sqlite:///{tmp_path / 'record.db'}", parser=parser))
    with pytest.raises(UnknownParser, match=words):
        await service.start()
    await service.stop()
