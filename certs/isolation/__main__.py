"""`python -m certs.isolation`: run one command isolated, and tell what it tried. See `certs.isolation.wrap`.

Two processes: the command, in the namespace; and this one outside, which serves its doors, hands on signals, and ends
as it ends. The command dies with this one, and without it has no way out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from certs.environment import CA_VARIABLES, NO_PROXY_VARIABLES, PROXY_VARIABLES
from certs.isolation import NOT_ISOLATED, Report, kernel, trust
from certs.isolation.relay import WEB, Relay, Upstream
from certs.isolation.watch import Watch

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_LOOK_SECONDS = 0.02
_EVERYWHERE = "0.0.0.0"
_SOCKETS = 16
_ADVICE = (
    "This user must be allowed to make namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_"
    "unprivileged_userns; in a container --cap-add SYS_ADMIN); `tap run --count-direct` needs none, and only counts."
)
_KEPT = "NODE_EXTRA_CA_CERTS"
"""The one variable of ours without which no file helps: Node's and Bun's roots are built in."""


def main(words: Sequence[str]) -> NoReturn:
    """Run the command; never returns."""
    parser = argparse.ArgumentParser(prog="certs.isolation")
    parser.add_argument("--mode", choices=["isolate", "no-env", "count"], required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="harnesstap-") as folder:
        status, report = _run(options.mode, options.command, Path(folder))
    _tell(report, options.mode, options.report)
    _end_as(status)


def _run(mode: str, command: list[str], folder: Path) -> tuple[int, Report]:
    """Start the command and stay with it to its end; its wait status, and what it tried."""
    try:
        upstream = Upstream.of(os.environ)
        shown = trust.shown(Path(os.environ["SSL_CERT_FILE"]), command[0], folder) if mode == "no-env" else {}
    except (ValueError, OSError, KeyError) as error:
        _fail(f"cannot isolate: {error}")
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _become(mode, command, upstream, shown, theirs)
    theirs.close()
    if mode == "count":
        report = asyncio.run(_counted(child, upstream))
        return os.waitpid(child, 0)[1], report
    try:
        sockets = _set_up(child, ours)
    except OSError as error:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        _fail(f"cannot isolate: {error}. {_ADVICE}")
    relay = Relay(upstream, mode == "no-env", Watch(_carried(mode, upstream)))
    report = asyncio.run(_served(child, relay, sockets, ours))
    return os.waitpid(child, 0)[1], report


def _become(
    mode: str, command: list[str], upstream: Upstream, shown: Mapping[Path, Path], parent: socket.socket
) -> NoReturn:
    """In the child: enter the namespace, hand its sockets out, and become the command."""
    try:
        if mode != "count":
            _enter(mode, upstream, shown, parent)
        kernel.die_with_parent()
    except OSError as error:
        parent.send(f"{error.strerror or error}".encode())
        os._exit(NOT_ISOLATED)
    parent.close()
    environ = dict(os.environ)
    if mode == "no-env":
        for name in {*PROXY_VARIABLES, *NO_PROXY_VARIABLES, *CA_VARIABLES, "NODE_USE_ENV_PROXY"} - {_KEPT}:
            environ.pop(name, None)
    for signum in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)  # Python has its own way with these
    try:
        os.execvpe(command[0], command, environ)
    except FileNotFoundError:
        status, reason = _NOT_FOUND, "no such command"
    except OSError as error:
        status, reason = _NOT_EXECUTABLE, str(error.strerror)
    print(f"tap: {command[0]}: {reason}", file=sys.stderr, flush=True)
    os._exit(status)


def _enter(mode: str, upstream: Upstream, shown: Mapping[Path, Path], parent: socket.socket) -> None:
    kernel.leave(mounts=mode == "no-env")
    parent.send(b"left")
    parent.recv(16)
    kernel.open_loopback()
    if shown:
        kernel.own_mounts()
    for path, source in shown.items():
        kernel.show_at(source, path)
    sockets = [_bound(socket.SOCK_DGRAM, _EVERYWHERE, 53), kernel.packets(kernel.IPV4_FRAMES)]
    doors = [(port, _EVERYWHERE) for port in WEB] if mode == "no-env" else [(upstream.port, _door(upstream))]
    sockets += [_bound(socket.SOCK_STREAM, host, port) for port, host in doors]
    if kernel.has_ipv6():
        sockets += [_bound(socket.SOCK_DGRAM, "::", 53), kernel.packets(kernel.IPV6_FRAMES)]
        sockets += [_bound(socket.SOCK_STREAM, "::", port) for port, host in doors if host == _EVERYWHERE]
    socket.send_fds(parent, [b"sockets"], [one.fileno() for one in sockets])
    if parent.recv(16) != b"go":
        os._exit(NOT_ISOLATED)


def _door(upstream: Upstream) -> str:
    """Where the proxy is found inside: at its own address, or, known by a name, at whichever that gets."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, upstream.host)
            return upstream.host
    return _EVERYWHERE


def _carried(mode: str, upstream: Upstream) -> Callable[[str, int], bool]:
    """Which addresses and ports have a door."""
    if mode == "no-env":
        return lambda _, port: port in WEB
    door = _door(upstream)
    return lambda address, port: port == upstream.port and door in (_EVERYWHERE, address)


def _bound(kind: socket.SocketKind, host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.bind((host, port))
    return made


def _set_up(child: int, ours: socket.socket) -> list[socket.socket]:
    """In the parent: let the child's ids be, and take its sockets. Raises OSError with what the child says is wrong."""
    if (said := ours.recv(1024)) != b"left":
        raise OSError(said.decode())
    kernel.map_ids(child)
    ours.send(b"mapped")
    said, descriptors, _, _ = socket.recv_fds(ours, 1024, _SOCKETS)
    if said != b"sockets":
        raise OSError(said.decode())
    return [socket.socket(fileno=one) for one in descriptors]


async def _served(child: int, relay: Relay, sockets: list[socket.socket], ours: socket.socket) -> Report:
    async with relay.serving(sockets):
        ours.send(b"go")
        await _end_of(child)
    return Report(tuple(relay.direct), tuple(relay.refused), tuple(relay.names.asked))


async def _counted(child: int, upstream: Upstream) -> Report:
    from certs.isolation.sockets import connections

    proxy = {(str(info[4][0]), upstream.port) for info in socket.getaddrinfo(upstream.host, upstream.port)}
    seen: dict[str, None] = {}

    async def look() -> None:
        while True:
            seen.update(dict.fromkeys(sorted(connections(child, proxy))))
            await asyncio.sleep(_LOOK_SECONDS)

    looking = asyncio.create_task(look())
    await _end_of(child)
    looking.cancel()
    return Report(tuple(seen))


async def _end_of(child: int) -> None:
    """Hand signals on until the child ends."""
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(signum, _hand_on, child, signum)
    ended = asyncio.Event()
    descriptor = os.pidfd_open(child)
    loop.add_reader(descriptor, ended.set)
    await ended.wait()
    loop.remove_reader(descriptor)
    os.close(descriptor)


def _hand_on(child: int, signum: signal.Signals) -> None:
    if signum in (signal.SIGINT, signal.SIGQUIT) and _from_terminal():
        return  # the terminal told the child as well
    with suppress(ProcessLookupError):
        os.kill(child, signum)


def _from_terminal() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def _tell(report: Report, mode: str, path: Path | None) -> None:
    if path is not None:
        path.write_text(json.dumps(asdict(report)))
        return
    what = "seen" if mode == "count" else "refused"
    lines = [f"direct connections {what}: {_listed(report.direct)}"]
    if report.refused:
        lines.append(f"not let out by the proxy: {_listed(report.refused)}")
    for line in lines:
        print(f"tap: {line}", file=sys.stderr, flush=True)


def _listed(what: Sequence[str]) -> str:
    return f"{len(what)} ({', '.join(dict.fromkeys(what))})" if what else "none"


def _end_as(status: int) -> NoReturn:
    """End as the command did: with its exit status, or by the same signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _fail(message: str) -> NoReturn:
    print(f"tap: {message}", file=sys.stderr, flush=True)
    sys.exit(NOT_ISOLATED)


if __name__ == "__main__":
    main(sys.argv[1:])
