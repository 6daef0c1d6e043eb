"""Do real TLS clients accept what mitmproxy signs with our CA, and reject it outside the name constraints?

A real mitmdump intercepts every host and answers each request itself; each client gets its trust and its
proxy from our environment variables alone.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest
from _pytest.mark.structures import ParameterSet

from certs import ca
from certs.environment import harness_environment, proxy_url
from certs.keys import session_key
from tests.certs.clients import FETCHED, PRESENT, PYTHON, argv

pytestmark = pytest.mark.slow

PERMITTED = ("api.openai.com", "openai.azure.com")
INSIDE = ("api.openai.com", "eu.api.openai.com", "myteam.openai.azure.com")
OUTSIDE = ("example.com", "openai.com", "api.openai.com.example.com", "203.0.113.7")
REJECTION = r"name ?constraint|subtree violation|not permitted by any constraint|excluded by constraint"
"""How OpenSSL, BoringSSL, Go and rustls say it."""
SESSION = "team.a@b-1"
"""With the one character that must be percent-encoded in a proxy URL."""

ADDON = """
import base64, os
from pathlib import Path
from mitmproxy import http
from certs.keys import check

class Answer:
    def http_connect(self, flow):
        user = base64.b64decode(flow.request.headers.get("proxy-authorization", "Basic ")[6:]).decode()
        name, _, key = user.partition(":")
        if not check(Path(os.environ["TEST_HOME"]), name, key):
            flow.response = http.Response.make(407, b"who?", {"proxy-authenticate": "Basic"})

    def tls_clienthello(self, data):
        if data.client_hello.sni and data.context.server.address[0] != "203.0.113.8":
            data.context.server.address = (data.client_hello.sni, 443)

    def request(self, flow):
        with open(os.environ["TEST_LOG"], "a") as log:
            print(flow.request.host, file=log)
        flow.response = http.Response.make(200, b"intercepted")

addons = [Answer()]
"""


def pairs(hosts: tuple[str, ...]) -> list[ParameterSet]:
    """Each client with each host; the Python ones, all one OpenSSL and told apart by their variables, with one."""
    present = [pytest.param(client, host) for client in PRESENT for host in hosts[: 1 if client in PYTHON else None]]
    return present + [pytest.param(client, host, marks=pytest.mark.network) for client in FETCHED for host in hosts]


@dataclass(frozen=True)
class Proxy:
    """A running mitmdump, the environment that leads to it, and the file that it logs requests to."""

    folder: Path
    port: int
    authority: ca.Authority
    environment: dict[str, str]
    log: Path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("clients")
    home, port, log = folder / "home", free_port(), folder / "requests.log"
    authority = ca.ensure(home, PERMITTED, environ={})
    (folder / "answer.py").write_text(ADDON)
    command = [sys.executable, "-c", "from mitmproxy.tools.main import mitmdump; mitmdump()", "--quiet"]
    command += ["--listen-host", "127.0.0.1", "--listen-port", str(port), "-s", str(folder / "answer.py")]
    command += ["--set", f"confdir={authority.directory}", "--set", "connection_strategy=lazy"]
    environ = {**os.environ, "TEST_HOME": str(home), "TEST_LOG": str(log)}
    with subprocess.Popen(command, env=environ) as process:
        try:
            wait_for(port, process)
            url = proxy_url("127.0.0.1", port, SESSION, session_key(home, SESSION))
            # Nothing of the caller's environment but PATH: what a client needs must come from our variables.
            given = {"PATH": os.environ["PATH"], "HOME": str(folder), "UV_HTTP_RETRIES": "0"}
            yield Proxy(folder, port, authority, {**given, **harness_environment(url, authority.bundle)}, log)
        finally:
            process.terminate()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "mitmdump ended at once"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("mitmdump does not listen after a minute")


def get(proxy: Proxy, client: str, host: str) -> tuple[bool, str]:
    """Whether a request of `client` came through TLS to the proxy, and what the client said."""
    command = argv(client, proxy.folder, f"https://{host}/")
    proxy.log.write_text("")
    done = subprocess.run(command, env=proxy.environment, capture_output=True, text=True, timeout=300, check=False)
    return host in proxy.log.read_text().split(), done.stdout + done.stderr


@pytest.mark.parametrize(("client", "host"), pairs(INSIDE))
def test_client_accepts_a_provider(proxy: Proxy, client: str, host: str) -> None:
    came, said = get(proxy, client, host)
    assert came, said


@pytest.mark.parametrize(("client", "host"), pairs(OUTSIDE))
def test_client_rejects_any_other_host(proxy: Proxy, client: str, host: str) -> None:
    came, said = get(proxy, client, host)
    assert not came
    # For the reason meant, not since the client failed to start or to find the proxy.
    assert re.search(REJECTION, said, re.IGNORECASE), said


def connect(proxy: Proxy, target: str, server_name: str) -> str:
    """CONNECT to `target` and speak TLS for `server_name` there: the version agreed on."""
    context = ssl.create_default_context(cafile=str(proxy.authority.bundle))
    user = proxy.environment["HTTPS_PROXY"].removeprefix("http://").partition("@")[0]
    token = base64.b64encode(unquote(user).encode()).decode()
    with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {token}\r\n\r\n"
        raw.sendall(head.encode())
        assert b" 200 " in raw.recv(4096)
        with context.wrap_socket(raw, server_hostname=server_name) as secure:
            return secure.version() or ""


def test_connect_by_address(proxy: Proxy) -> None:
    """As in transparent mode, where the address must not get into the certificate."""
    assert connect(proxy, "203.0.113.7:443", "api.openai.com") == "TLSv1.3"


def test_connect_by_address_without_the_addons_help(proxy: Proxy) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="excluded subtree violation"):
        connect(proxy, "203.0.113.8:443", "api.openai.com")


def test_mitmproxy_answers_for_the_certificate_that_tap_made(proxy: Proxy) -> None:
    """mitmproxy makes its own CA where it finds none; it must have found ours."""
    made = {path.name for path in proxy.authority.directory.iterdir()}
    assert "mitmproxy-ca-cert.pem" not in made


def test_harness_with_the_older_certificate(proxy: Proxy, tmp_path: Path) -> None:
    """Hosts changed under a running proxy and a running harness: same key, so each still understands the
    other."""
    before = proxy.authority.certificate.read_bytes()
    (tmp_path / "certs").mkdir()
    for name in ("mitmproxy-ca.pem", "session-secret"):
        shutil.copy(proxy.authority.directory / name, tmp_path / "certs" / name)
    newer = ca.ensure(tmp_path, [*PERMITTED, "api.x.ai"], environ={})
    assert newer.outcome == "re-signed"
    assert newer.certificate.read_bytes() != before
    renewed = Proxy(proxy.folder, proxy.port, newer, proxy.environment, proxy.log)
    assert connect(renewed, "api.openai.com:443", "api.openai.com") == "TLSv1.3"
