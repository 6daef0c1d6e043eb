"""Every way into the proxy, and the one way out of a namespace: real mitmdump, curl, and the official SDK."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec

from addons.model import ModelFiles
from certs import keys
from certs.isolation import why_not
from replay.reader import Reader
from replay.store import Store
from tests.certs.test_ca import pem_key, self_signed
from tests.proxy import ROOT, Proxy, free_port, mitmdump
from tests.scripted_engine import ScriptedEngine

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

needs_namespaces = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")
BODY = '{"model": "gpt-5.2", "messages": [{"role": "user", "content": "hi"}]}'
POST = [
    "curl",
    "-sS",
    "-m",
    "20",
    "-H",
    "content-type: application/json",
    "-H",
    "x-api-key: any",
    "-d",
    BODY,
]
SDK = """
from openai import OpenAI
reply = OpenAI(api_key="any", max_retries=0).chat.completions.create(
    model="gpt-5.2", messages=[{"role": "user", "content": "hi"}])
print(reply.choices[0].message.content)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny: ModelFiles) -> AsyncIterator[ScriptedEngine]:
    async for running in ScriptedEngine(tiny).run():
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    """One mitmdump with a session's own port; keys are compulsory, as beyond loopback."""
    port = free_port()
    folder, mine = tmp_path_factory.mktemp("proxy"), f"by-port={port}"
    async with mitmdump(folder, engine.url, tap_keys="required", tap_session_ports=mine) as running:
        running.session_port = port
        yield running


def turns_of(proxy: Proxy, session: str) -> list[str]:
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        return [turn.purpose for turn in reader.turns(reader.session(session))]


async def tap_run(proxy: Proxy, session: str, *words: str, bare: bool = True) -> tuple[int, str]:
    """`tap run`, in an environment that has nothing but PATH and HOME."""
    env = {"PATH": os.environ["PATH"], "HOME": str(proxy.home)} if bare else dict(os.environ)
    command = [sys.executable, "-c", "from addons.cli import app; app()", "run", "--session", session]
    command += ["--home", str(proxy.home), "--port", str(proxy.port), *words]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_a_user_in_the_proxy_url(proxy: Proxy, engine: ScriptedEngine) -> None:
    engine.say("by user")
    code, out = await proxy.run(*POST, "https://api.openai.com/v1/chat/completions", session="by-user")
    assert (code, "by user" in out) == (0, True), out
    assert turns_of(proxy, "by-user") == ["main"]


async def test_a_port_of_the_sessions_own(proxy: Proxy, engine: ScriptedEngine) -> None:
    engine.say("by port")
    url = f"http://127.0.0.1:{proxy.session_port}"
    words = ["env", "-u", "HTTPS_PROXY", "-u", "https_proxy", *POST, "-x", url]
    code, out = await proxy.run(*words, "https://api.openai.com/v1/chat/completions")
    assert (code, "by port" in out) == (0, True), out + proxy.log.read_text()
    assert turns_of(proxy, "by-port") == ["main"]
    code, out = await proxy.run(*POST, "https://api.openai.com/v1/chat/completions")
    assert code != 0, "on the other port, keys stay compulsory"


async def test_a_base_url(engine: ScriptedEngine, tmp_path: Path) -> None:
    """mitmdump's reverse mode, with and without a port that is a session's, and the gateway's own port."""
    gateway, named = free_port(), free_port()
    modes = [f"reverse:https://api.openai.com@127.0.0.1:{named}"]
    async with mitmdump(
        tmp_path, engine.url, modes=modes, tap_gateway_port=str(gateway), tap_session_ports=f"by-base={named}"
    ) as proxy:
        for port, session in ((named, "by-base"), (gateway, None)):
            engine.say("by base URL")
            direct = ["env", "-i", f"PATH={os.environ['PATH']}", *POST]
            code, out = await proxy.run(*direct, f"http://127.0.0.1:{port}/v1/chat/completions")
            assert (code, "by base URL" in out) == (0, True), out + proxy.log.read_text()[-2000:]
            if session is not None:
                assert turns_of(proxy, session) == ["main"]


async def test_reverse_mode_takes_the_host_from_the_client(engine: ScriptedEngine, tmp_path: Path) -> None:
    """For a hosts file that points the providers here: nothing but the client's TLS says which it wants."""
    port = free_port()
    modes = [f"reverse:https://placeholder.invalid@127.0.0.1:{port}"]
    async with mitmdump(tmp_path, engine.url, modes=modes, keep_host_header="true") as proxy:
        engine.say("by reverse")
        bundle = str(proxy.home / "certs" / "bundle.pem")
        direct = ["env", "-i", f"PATH={os.environ['PATH']}", *POST, "--cacert", bundle]
        to = ["--connect-to", f"::127.0.0.1:{port}"]
        code, out = await proxy.run(*direct, *to, "https://api.openai.com/v1/chat/completions")
        assert (code, "by reverse" in out) == (0, True), out + proxy.log.read_text()[-2000:]
        code, out = await proxy.run(*direct, *to, "https://example.com/")
        assert code == 60, "no certificate for a host that is no provider"


@needs_namespaces
async def test_isolated_by_environment(proxy: Proxy, engine: ScriptedEngine) -> None:
    engine.say("from inside")
    code, out = await tap_run(proxy, "isolated", "--isolate", "--", sys.executable, "-c", SDK)
    assert (code, out.splitlines()) == (0, ["from inside", "tap: direct connections refused: none"]), out
    assert turns_of(proxy, "isolated") == ["main"]
    words = ["curl", "-sS", "--noproxy", "*", "-m", "5", "https://api.openai.com/v1/models"]
    code, out = await tap_run(proxy, "isolated", "--isolate", "--", *words)
    assert (code, "refused: 1 (api.openai.com:443)" in out) == (7, True), out


@needs_namespaces
async def test_without_any_variable(proxy: Proxy, engine: ScriptedEngine) -> None:
    """curl, the official SDK (certifi), and Python's own TLS (OpenSSL's files): none is told anything."""
    shown = await tap_run(proxy, "bare", "--no-env", "--", "env")
    assert not {"HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE"} & {
        line.partition("=")[0] for line in shown[1].splitlines()
    }
    engine.say("to curl")
    code, out = await tap_run(proxy, "bare", "--no-env", "--", *POST, "https://api.openai.com/v1/chat/completions")
    assert (code, "to curl" in out) == (0, True), out
    engine.say("to the SDK")
    code, out = await tap_run(proxy, "bare", "--no-env", "--", sys.executable, "-c", SDK)
    assert (code, "to the SDK" in out) == (0, True), out
    fetch = "import urllib.request; print(urllib.request.urlopen('https://api.openai.com/v1/models').status)"
    code, out = await tap_run(proxy, "bare", "--no-env", "--", sys.executable, "-c", fetch)
    assert (code, out.splitlines()[:1]) == (0, ["200"]), out
    if os.path.isdir(ssl.get_default_verify_paths().openssl_capath):  # noqa: ASYNC240
        by_folder = (
            "import ssl, urllib.request; c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); "
            "c.load_verify_locations(capath=ssl.get_default_verify_paths().openssl_capath); "
            "print(urllib.request.urlopen('https://api.openai.com/v1/models', context=c).status)"
        )
        code, out = await tap_run(proxy, "bare", "--no-env", "--", sys.executable, "-c", by_folder)
        assert (code, out.splitlines()[:1]) == (0, ["200"]), out
    assert len(turns_of(proxy, "bare")) == 2
    code, out = await tap_run(proxy, "bare", "--no-env", "--", "curl", "-sS", "-m", "5", "http://example.com/")
    assert "example.com is no model provider" in out, "plain HTTP is told why"
    code, out = await tap_run(proxy, "bare", "--no-env", "--", "curl", "-sS", "-m", "5", "https://example.com/")
    assert (code != 0, "not let out by the proxy: 1 (example.com:443 (403))" in out) == (True, True), out


async def test_one_way_at_a_time(proxy: Proxy) -> None:
    code, out = await tap_run(proxy, "both", "--isolate", "--no-env", "--", "true")
    assert (code, "choose one of --isolate, --no-env and --count-direct" in out) == (125, True)


async def test_direct_connections_are_counted(proxy: Proxy) -> None:
    code, out = await tap_run(proxy, "counted", "--count-direct", "--", "sh", "-c", "exit 3")
    assert (code, "tap: direct connections seen: none" in out) == (3, True), out


async def test_transparent_in_a_namespace(tiny: ModelFiles, tmp_path: Path) -> None:
    """iptables REDIRECT and `--mode transparent`: all of it in one network, with a client that knows of no proxy."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("iptables", "ip", "unshare"))):
        pytest.skip("needs root, iproute2 and iptables")
    scene = [sys.executable, "-m", "tests.e2e.transparent_scene", str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, ["unshare", "--net", *scene], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    if "iptables cannot" in done.stdout:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-1] == "by transparent: main"


def self_signed_server(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "server.pem").write_bytes(pem_key(key) + self_signed("somebody", key=key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


async def test_what_is_let_out_is_counted(engine: ScriptedEngine, tmp_path: Path) -> None:
    """A host allowed by name, over TLS in a tunnel and in plain HTTP; another stays shut."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            got.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    over_tls = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=self_signed_server(tmp_path))
    port, tls_port = (one.sockets[0].getsockname()[1] for one in (server, over_tls))
    async with mitmdump(tmp_path, engine.url, tap_allow="pypi,localhost.localdomain,127.0.0.1") as proxy:
        words = ["curl", "-sS", "-m", "10", "--noproxy", ""]
        code, out = await proxy.run(*words, "-d", "12345678", f"http://127.0.0.1:{port}/x", session="out")
        assert (code, out) == (0, "hello"), out + proxy.log.read_text()
        code, out = await proxy.run(*words, "-p", f"http://127.0.0.1:{port}/y", session="out")
        assert (code, out) == (0, "hello"), out + proxy.log.read_text()
        code, out = await proxy.run(*words, "-k", f"https://127.0.0.1:{tls_port}/z", session="out")
        assert (code, out) == (0, "hello"), out + proxy.log.read_text()
        code, out = await proxy.run(*words, "-v", "https://registry.npmjs.org/", session="out")
        assert (code != 0, "403" in out) == (True, True)
        code, out = await proxy.run(*words, "http://registry.npmjs.org/", session="out")
        assert "--allow registry.npmjs.org" in out
        await asyncio.sleep(0.5)
        assert "out let out to 127.0.0.1" in proxy.log.read_text()
        with Store.open(proxy.store) as store:
            egress = (Reader(store).session("out").meta or {})["egress"]
    assert len(got) == 3
    assert list(egress) == ["127.0.0.1"]
    assert egress["127.0.0.1"]["connections"] == 3
    assert egress["127.0.0.1"]["received"] > 500, "with the certificate of the TLS server"
    assert egress["127.0.0.1"]["sent"] > 300
    server.close()
    over_tls.close()


async def test_what_the_agent_wrote_is_told_from_the_agent(proxy: Proxy, engine: ScriptedEngine) -> None:
    """A session of one program, in which curl and the SDK are then run with the environment it had."""
    tools = '], "tools": [{"type": "function", "function": {"name": "bash"}}]}'
    agent = [*POST[:-1], BODY.replace("hi", "do it").replace("]}", tools), "-A", "my-agent/1.0"]
    other_key = [word.replace(": any", ": of-its-own") for word in POST]
    url = "https://api.openai.com/v1/chat/completions"
    for words in (agent, POST, [*other_key, "-A", "my-agent/1.0"]):
        engine.say("ok")
        code, out = await proxy.run(*words, url, session="wrote")
        assert code == 0, out
    engine.say("ok")
    await proxy.python(SDK, session="wrote")
    assert turns_of(proxy, "wrote") == ["main", *["agent_authored"] * 3]
    assert keys.session_key(proxy.home, "wrote") not in proxy.log.read_text()
