"""Carries what connects to a namespace's doors to the proxy outside, answers names there, and notes what else is tried.

The doors are sockets that were opened in the namespace and are served from outside it: there is no network between.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit

from certs.isolation.names import Names
from certs.isolation.watch import Watch

WEB = (80, 443)
"""The ports on which a program without proxy variables is led to the proxy."""
_DNS = 53
_ANSWER_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Upstream:
    """The proxy, from its URL; `user` is `session:key`."""

    host: str
    port: int
    user: str | None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Where HTTPS_PROXY leads; raises ValueError."""
        url = urlsplit(environ.get("HTTPS_PROXY", ""))
        if url.scheme != "http" or not url.hostname:
            raise ValueError("HTTPS_PROXY must be http://SESSION:KEY@HOST:PORT, the proxy that is the only way out")
        user = None if url.username is None else f"{unquote(url.username)}:{unquote(url.password or '')}"
        return cls(url.hostname, url.port or 80, user)

    def connect(self, host: str, port: int) -> bytes:
        """The request for a tunnel."""
        target = _at(host, port)
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self.user is not None:
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(self.user.encode()).decode()}")
        return "\r\n".join([*lines, "", ""]).encode()


@dataclass
class Relay:
    """One namespace's. With `tunnels`, a connection is led to where it was meant to go, through the proxy; otherwise
    it already speaks to the proxy, and is carried as it is."""

    upstream: Upstream
    tunnels: bool
    watch: Watch
    names: Names = field(default_factory=Names)
    refused: dict[str, None] = field(default_factory=dict)
    """Where the proxy led no connection, with its reason."""
    _carrying: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def direct(self) -> list[str]:
        """Connections that were tried past the proxy."""
        return [
            _at(self.names.name_of(address), port) + ("/udp" if kind == "udp" else "")
            for address, port, kind in self.watch.tried
        ]

    @asynccontextmanager
    async def serving(self, sockets: list[socket.socket]) -> AsyncIterator[None]:
        """Serve the sockets of the namespace: doors, name servers, and packet sockets."""
        loop = asyncio.get_running_loop()
        doors = [one for one in sockets if one.type == socket.SOCK_STREAM]
        packets = [one for one in sockets if one.family == socket.AF_PACKET]
        servers = [await asyncio.start_server(self._connected, sock=door) for door in doors]
        for one in sockets:
            one.setblocking(False)
            if one in packets:
                loop.add_reader(one, self._see, one)
            elif one not in doors:
                loop.add_reader(one, self._answer, one)
        try:
            yield
        finally:
            for server in servers:
                server.close()
            for one in packets:
                self._see(one)
            for one in set(sockets) - set(doors):
                loop.remove_reader(one)
                one.close()
            for carrying in self._carrying:
                carrying.cancel()
            await asyncio.gather(*self._carrying, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        meant, port = writer.get_extra_info("sockname")[:2]
        try:
            there, back = await asyncio.open_connection(self.upstream.host, self.upstream.port, limit=_ANSWER_LIMIT)
        except OSError as error:
            self.refused[f"the proxy ({error.strerror or error})"] = None
            writer.close()
            return
        try:
            if not self.tunnels or await self._tunnel(self.names.name_of(meant), port, there, back, writer):
                await asyncio.gather(_pump(reader, back), _pump(there, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side broke off; the other learns it by the end of its connection
        finally:
            writer.close()
            back.close()

    async def _tunnel(
        self, host: str, port: int, there: asyncio.StreamReader, back: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
    ) -> bool:  # fmt: skip
        """Ask for a tunnel. Who speaks plain HTTP is shown why there is none; a TLS client cannot be told."""
        back.write(self.upstream.connect(host, port))
        answer = await there.readuntil(b"\r\n\r\n")
        status = answer.split(b" ", 2)[1].decode("ascii", "replace")
        if status == "200":
            return True
        self.refused[f"{_at(host, port)} ({status})"] = None
        if port != 443:
            back.write_eof()
            writer.write(answer)
            await _pump(there, writer)
        return False

    def _see(self, packets: socket.socket) -> None:
        while True:
            try:
                self.watch.see(packets.recv(1 << 16))
            except BlockingIOError:
                return

    def _answer(self, server: socket.socket) -> None:
        query, sender = server.recvfrom(4096)
        if (reply := self.names.answer(query)) is not None:
            server.sendto(reply, sender)


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
