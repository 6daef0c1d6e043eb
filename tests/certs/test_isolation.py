"""What a process in a network of its own tries to reach, and what it does reach."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from certs import ca
from certs.isolation import NOT_ISOLATED, Mode, read_report, trust, why_not, wrap
from certs.isolation.names import Names
from certs.isolation.relay import Upstream
from certs.isolation.sockets import connections

needs_namespaces = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")

TRY = """
import socket, sys
def attempt(address):
    try:
        socket.create_connection(address, 5)
        return "reached"
    except OSError as error:
        return type(error).__name__
print(attempt(("provider.example", 443)), attempt(("198.51.100.7", 80)), attempt(("198.51.100.7", 80)))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"quic", ("198.51.100.8", 443))
socket.getaddrinfo("only-asked.example", 443, socket.AF_INET)
proxy = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
proxy.sendall(b"hello")
proxy.shutdown(socket.SHUT_WR)
print(proxy.recv(100).decode())
"""


@pytest.fixture
def upstream() -> Iterator[int]:
    """Something that listens where the proxy would, and says what it heard."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard = b""
                    while data := connection.recv(1000):
                        heard += data
                    connection.sendall(b"proxy heard " + heard)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def environment(port: int, bundle: Path | None = None) -> dict[str, str]:
    proxy = {"HTTPS_PROXY": f"http://s:k@127.0.0.1:{port}"}
    return {"PATH": os.environ["PATH"], **proxy, **({"SSL_CERT_FILE": str(bundle)} if bundle else {})}


def run(words: list[str], port: int, mode: Mode = "isolate") -> subprocess.CompletedProcess[str]:
    env = environment(port)
    return subprocess.run(wrap(words, mode), env=env, capture_output=True, text=True, timeout=60, check=False)


@needs_namespaces
def test_only_the_proxy_is_reached_and_all_else_is_named(upstream: int, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = wrap([sys.executable, "-c", TRY, str(upstream)], report=report)
    done = subprocess.run(words, env=environment(upstream), capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "ConnectionRefusedError ConnectionRefusedError ConnectionRefusedError\nproxy heard hello\n"
    assert done.stderr == ""
    told = read_report(report)
    assert told.direct == ("provider.example:443", "198.51.100.7:80", "198.51.100.7:80", "198.51.100.8:443/udp")
    assert told.asked == ("provider.example", "only-asked.example")
    assert told.refused == ()


@needs_namespaces
def test_the_status_is_the_commands_own(upstream: int) -> None:
    assert run(["sh", "-c", "exit 7"], upstream).returncode == 7
    assert run(["sh", "-c", "kill -TERM $$"], upstream).returncode == -signal.SIGTERM
    assert run(["sh", "-c", "kill -KILL $$"], upstream).returncode == -signal.SIGKILL
    missing = run(["no-such-program"], upstream)
    assert (missing.returncode, "no-such-program: no such command" in missing.stderr) == (127, True)
    assert run(["/etc"], upstream).returncode == 126
    told = run(["true"], upstream)
    assert (told.returncode, told.stderr) == (0, "tap: direct connections refused: none\n")


@needs_namespaces
def test_files_and_users_are_the_machines(upstream: int, tmp_path: Path) -> None:
    done = run(["sh", "-c", f"id -u; touch {tmp_path}/made"], upstream)
    assert done.stdout.strip() == str(os.geteuid())
    assert (tmp_path / "made").stat().st_uid == os.geteuid()


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="only root could go back to begin with")
def test_there_is_no_way_back(upstream: int) -> None:
    back = f"import os; os.setns(os.open('/proc/{os.getpid()}/ns/net', os.O_RDONLY), os.CLONE_NEWNET); print('out')"
    done = run([sys.executable, "-c", back], upstream)
    assert ("PermissionError" in done.stderr, done.stdout) == (True, "")


@needs_namespaces
def test_signals_are_handed_on_and_nothing_stays_behind(upstream: int) -> None:
    script = "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit(9)); print('up', flush=True); "
    words = wrap([sys.executable, "-c", script + "time.sleep(60)"])
    for signum, status in ((signal.SIGINT, 9), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
        process = subprocess.Popen(words, env=environment(upstream), stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signum)
        assert process.wait(20) == status
        assert process.stdout.read() == b""  # the command has ended, too: it held the other end
        assert children
        time.sleep(0.1)
        assert not any(Path(f"/proc/{child}/exe").exists() for child in children)


def test_what_cannot_work_says_so(upstream: int) -> None:
    env = {"PATH": os.environ["PATH"], "HTTPS_PROXY": "socks5://127.0.0.1:1"}
    done = subprocess.run(wrap(["true"]), env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "HTTPS_PROXY must be http://" in done.stderr) == (NOT_ISOLATED, True)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_counting_needs_no_namespace(upstream: int) -> None:
    script = f"import socket, time; s = socket.create_connection(('127.0.0.1', {upstream})); print(s.getsockname()[1])"
    done = run([sys.executable, "-c", script], upstream, "count")
    assert (done.returncode, done.stderr) == (0, "tap: direct connections seen: none\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback's")
        own = probe.getsockname()[0]
    with socket.create_server((own, 0)) as server:
        port = server.getsockname()[1]
        script = f"import socket, time; s = socket.create_connection(('{own}', {port})); time.sleep(0.5)"
        done = run(["sh", "-c", f'{sys.executable} -c "{script}"'], upstream, "count")
        assert done.stderr == f"tap: direct connections seen: 1 ({own}:{port})\n"
        with socket.create_connection((own, port)):
            assert connections(os.getpid(), {(own, port)}) == set()


def test_names() -> None:
    names = Names()
    question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03API\x07example\x00"
    answer = names.answer(question + b"\x00\x01\x00\x01")
    assert answer is not None
    assert answer[:2] == b"\x12\x34"
    address = socket.inet_ntoa(answer[-4:])
    assert names.name_of(address) == "api.example"
    assert names.answer(question + b"\x00\x01\x00\x01") == answer
    assert (names.answer(question + b"\x00\x1c\x00\x01") or b"")[7] == 0, "no IPv6 address"
    assert names.answer(b"\x12\x34junk") is None
    assert names.name_of("192.0.2.1") == "192.0.2.1"


def test_the_proxy_from_its_url() -> None:
    upstream = Upstream.of({"HTTPS_PROXY": "http://a%40b:k%2Fy@gpu-7:8080"})
    assert (upstream.host, upstream.port, upstream.user) == ("gpu-7", 8080, "a@b:k/y")
    assert upstream.connect("2001:db8::1", 443).startswith(b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]")


def test_a_root_is_found_by_the_hash_of_its_subject(tmp_path: Path) -> None:
    authority = ca.ensure(tmp_path / "home", ["api.example.com"])
    words = ["openssl", "x509", "-noout", "-subject_hash", "-in", str(authority.certificate)]
    try:
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert trust.subject_hash(authority.certificate) == said
