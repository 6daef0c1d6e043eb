"""The documented use: a real `mitmdump -s addons/intercept.py`, real TLS clients behind HTTPS_PROXY."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from addons.model import ModelFiles
from certs import keys
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


pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


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
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    user = base64.b64encode(b"s:wrong").decode()
    writer.write(f"CONNECT api.openai.com:443 HTTP/1.1\r\nProxy-Authorization: Basic {user}\r\n\r\n".encode())
    answer = await reader.readuntil(b"KEY@HOST:PORT")
    assert b"407 Proxy Authentication Required" in answer
    assert b"Wrong key for session 's' in HTTPS_PROXY. Set HTTPS_PROXY=" in answer
    writer.close()
    code, out = await proxy.run("curl", "-s", "http://api.openai.com/v1/models", session="s", key="wrong")
    assert "Wrong key for session 's' in HTTPS_PROXY" in out
    assert "Wrong key for session 's' in HTTPS_PROXY" in proxy.log.read_text(), "few clients show the body"
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


def _listening_on(port: int) -> set[str]:
    """Local addresses, in the kernel's hexadecimal, of those who listen on `port`."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    sockets = [line[1].split(":") for line in lines if line[3] == "0A"]
    return {address for address, number in sockets if number == f"{port:04X}"}


async def test_plain_mitmdump_is_on_loopback_and_wants_no_key(engine: ScriptedEngine, tmp_path: Path) -> None:
    """`mitmdump -s addons/intercept.py` and a plain HTTPS_PROXY: what people try first."""
    async with mitmdump(tmp_path, engine.url, listen=None) as proxy:
        assert _listening_on(proxy.port) == {"0100007F"}
        code, out = await proxy.run("curl", "-sS", "https://api.openai.com/v1/models")
        assert (code, "scripted" in out) == (0, True), out


async def test_beyond_loopback_keys_are_compulsory(engine: ScriptedEngine, tmp_path: Path) -> None:
    """For everybody, whichever of the addresses it is."""
    async with mitmdump(tmp_path, engine.url, modes=["regular@0.0.0.0:0"]) as proxy:
        _, out = await proxy.run("curl", "-s", "http://api.openai.com/v1/models")
        assert "needs a session and its key. Set HTTPS_PROXY=" in out
        code, out = await proxy.run("curl", "-sS", "https://api.openai.com/v1/models", session="s")
        assert (code, "scripted" in out) == (0, True), out


async def test_hosts_that_are_no_provider_are_refused_with_a_reason(proxy: Proxy) -> None:
    code, out = await proxy.run("curl", "-sv", "https://example.invalid/")
    assert code != 0
    assert "403" in out
    _, out = await proxy.run("curl", "-s", "http://example.invalid/")
    assert "example.invalid is no model provider" in out
    assert "403 for example.invalid" in proxy.log.read_text()


async def _tunnel(proxy: Proxy, target: str, host: str, payload: bytes) -> tuple[bytes, bytes]:
    """CONNECT to `target` with a Host header of `host`; the answer, and what comes back for `payload`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    back = b""
    if b" 200 " in answer:
        writer.write(payload)
        with contextlib.suppress(TimeoutError, ConnectionError):
            back = await asyncio.wait_for(reader.read(100), 5)
    writer.close()
    return answer, back


async def test_raw_bytes_in_a_tunnel_reach_nobody(proxy: Proxy) -> None:
    reached = []

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(True)
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answer, _ = await _tunnel(proxy, f"127.0.0.1:{port}", "api.openai.com", b"SSH-2.0-x\r\n")
    assert b" 403 " in answer, "the Host header is not where it goes"
    answer, back = await _tunnel(proxy, "api.openai.com:22", "api.openai.com", b"SSH-2.0-x\r\n")
    assert (b" 200 " in answer, back) == (True, b"")
    assert "harnesstap opens no connection to api.openai.com:22" in proxy.log.read_text()
    assert not reached
    server.close()


async def test_one_connection_may_carry_several_users(proxy: Proxy, engine: ScriptedEngine) -> None:
    """Requests to a proxy in plain HTTP name their user each; a wrong key is refused each time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    for name, key, status in (("alice", None, 200), ("bob", None, 200), ("carol", "wrong", 407)):
        engine.say("ok")
        user = f"{name}:{key or keys.session_key(proxy.home, name)}"
        head = (
            "POST http://api.openai.com/v1/chat/completions HTTP/1.1\r\nHost: api.openai.com\r\n"
            f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(f"HTTP/1.1 {status}".encode())
        length = int(re.search(rb"(?i)content-length: (\d+)", answer).group(1))  # type: ignore[union-attr]
        await reader.readexactly(length)
    writer.close()
    engine.scripts.clear()
    assert {"alice", "bob"} <= sessions(proxy).keys()


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
        ({"tap_engine": "127.0.0.1:1"}, "write http://HOST:PORT"),
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
