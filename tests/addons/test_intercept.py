"""The documented use: a real `mitmdump -s addons/intercept.py`, real TLS clients behind HTTPS_PROXY."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from addons.model import ModelFiles
from replay.reader import Reader
from replay.schema import Session
from replay.store import Store
from tests.proxy import Proxy, mitmdump
from tests.scripted_engine import ScriptedEngine

ASK = """
from openai import OpenAI
reply = OpenAI(api_key="sk-nobody", max_retries=0).chat.completions.create(
    model="gpt-5.2", messages=[{"role": "user", "content": "hi"}], stream=STREAM)
print("".join(c.choices[0].delta.content or "" for c in reply) if STREAM else reply.choices[0].message.content)
"""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny: ModelFiles) -> AsyncIterator[ScriptedEngine]:
    async for running in ScriptedEngine(tiny).run():
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    """One mitmdump for the file: it takes seconds to start."""
    async with mitmdump(tmp_path_factory.mktemp("proxy"), engine.url) as running:
        yield running


def sessions(proxy: Proxy) -> dict[str, Session]:
    with Store.open(proxy.store) as store:
        return {session.name: session for session in Reader(store).sessions()}


@pytest.mark.parametrize("stream", ["False", "True"])
async def test_the_official_sdk_by_environment_alone(proxy: Proxy, engine: ScriptedEngine, stream: str) -> None:
    engine.say("hello from here")
    out = await proxy.python(ASK.replace("STREAM", stream), session=f"sess-{stream}")
    assert out.strip() == "hello from here"
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        session = reader.session(f"sess-{stream}")
        assert session.harness == "openai"
        [turn] = reader.turns(session)
        assert (turn.status, turn.route, turn.model) == ("complete", "/v1/chat/completions", "gpt-5.2")
        assert "sk-nobody" not in str(reader.request(turn))
    assert "sk-nobody" not in proxy.log.read_text()


async def test_without_a_user_it_works_too(proxy: Proxy, engine: ScriptedEngine) -> None:
    engine.say("ok")
    assert (await proxy.python(ASK.replace("STREAM", "False"))).strip() == "ok"
    assert [name for name in sessions(proxy) if name.startswith("anon-")]


async def test_http2_clients(proxy: Proxy, engine: ScriptedEngine) -> None:
    engine.say("over two")
    body = '{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'
    code, out = await proxy.run(
        "curl", "-sS", "--http2", "-w", "%{http_version}", "-d", body, "-H", "content-type: application/json",
        "https://api.openai.com/v1/chat/completions", session="h2",
    )  # fmt: skip
    assert (code, out[-1], "[DONE]" in out) == (0, "2", True)


async def test_a_wrong_key_says_which_variable_to_set(proxy: Proxy) -> None:
    code, out = await proxy.run("curl", "-sv", "https://api.openai.com/v1/models", session="s", key="wrong")
    assert code != 0
    assert "407" in out
    code, out = await proxy.run("curl", "-s", "http://api.openai.com/v1/models", session="s", key="wrong")
    assert "Wrong key for session 's' in HTTPS_PROXY" in out
    assert "tap env --session" in out


async def test_compulsory_keys_and_an_open_egress(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with mitmdump(tmp_path, engine.url, tap_keys="required", tap_egress="tunnel") as proxy:
        _, out = await proxy.run("curl", "-s", "http://api.openai.com/v1/models")
        assert "needs a session and its key" in out
        code, out = await proxy.run("curl", "-sS", "https://api.openai.com/v1/models", session="s")
        assert (code, "scripted" in out) == (0, True)
        # The host's address in CONNECT: the certificate must not name it, or the client refuses.
        to = ("--connect-to", "api.openai.com:443:192.0.2.7:443")
        code, out = await proxy.run("curl", "-sS", *to, "https://api.openai.com/v1/models", session="s")
        assert (code, "scripted" in out) == (0, True), out


async def test_hosts_that_are_no_provider_are_refused_with_a_reason(proxy: Proxy) -> None:
    code, out = await proxy.run("curl", "-sv", "https://example.invalid/")
    assert code != 0
    assert "403" in out
    _, out = await proxy.run("curl", "-s", "http://example.invalid/")
    assert "example.invalid is no model provider" in out


async def test_housekeeping_is_answered_here_and_is_no_turn(proxy: Proxy) -> None:
    url = "https://api.anthropic.com/api/event_logging/batch"
    code, out = await proxy.run("curl", "-sS", "-d", "{}", url, session="telemetry")
    assert (code, out) == (0, "{}")
    assert "telemetry" not in sessions(proxy)


async def test_a_foreign_name_inside_a_tunnel_to_a_provider_goes_nowhere(proxy: Proxy, engine: ScriptedEngine) -> None:
    to = ("--connect-to", "example.com:443:api.openai.com:443")
    code, out = await proxy.run("curl", "-sS", *to, "https://example.com/")
    assert (code, "certificate" in out) == (60, True), "our CA cannot sign for it"
    code, out = await proxy.run("curl", "-sSk", *to, "https://example.com/")
    assert (code, "example.com is no model provider" in out) == (0, True)
    assert "example.com" not in [line.split()[-1] for line in proxy.log.read_text().splitlines() if "server" in line]


async def test_a_large_request_passes(proxy: Proxy, engine: ScriptedEngine) -> None:
    engine.say("read it all")
    script = ASK.replace("stream=STREAM", "extra_body={'blob': 'x' * 5_000_000}").replace("STREAM", "False")
    assert (await proxy.python(script, session="big")).strip() == "read it all"


async def test_no_provider_is_ever_contacted_nor_even_looked_up(proxy: Proxy, engine: ScriptedEngine) -> None:
    """Names that cannot be resolved here still answer: nothing but loopback was asked."""
    engine.say("ok")
    await proxy.python(ASK.replace("STREAM", "True"), session="s")
    log = proxy.log.read_text()
    assert "getaddrinfo" not in log
    assert "server connect 127.0.0.1" in log
    assert [line for line in log.splitlines() if "server connect" in line and "127.0.0.1" not in line] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tap_parser": "nonsense"}, "no parser 'nonsense'. Choose one of"),
        ({"tap_model": "/nowhere"}, "/nowhere"),
        ({"tap_providers": "what"}, "'what': write HOST=DIALECT"),
        ({"tap_store": "mysql://x/y"}, "mysql"),
    ],
)
async def test_what_cannot_work_refuses_to_start(
    engine: ScriptedEngine, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    async with mitmdump(tmp_path, engine.url, wait=False, **options) as proxy:
        assert await asyncio.wait_for(proxy.process.wait(), 120) == 1
        assert words in proxy.log.read_text()


async def test_raw_logprobs_refuse_to_start(tiny: ModelFiles, tmp_path: Path) -> None:
    async for engine in ScriptedEngine(tiny, raw_logprobs=True).run():
        async with mitmdump(tmp_path, engine.url, wait=False) as proxy:
            assert await asyncio.wait_for(proxy.process.wait(), 120) == 1
            assert "--logprobs-mode processed_logprobs" in proxy.log.read_text()
