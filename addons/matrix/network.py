"""A network of a harness's own, in which everything it tries to reach directly is seen and refused.

The harness runs in a fresh network namespace (Linux, root) that has nothing but loopback. Every IPv4 address there
is the namespace's own, so a connection to anywhere is refused at once, and a raw socket sees it. A name server of ours
answers every name with an address of its own, so that what passes the proxy by has a name in the report. The one
listening port is the proxy's: what connects to it is carried over to the real one outside.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

_IPV4, _ETHERNET = 0x0800, 14
_TCP, _UDP, _SYN, _ACK = 6, 17, 0x02, 0x10
_DNS = 53
_A_RECORD = struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4)  # of the name in the question: A, IN, for a minute
_NAMED = "192.0.2."  # of no host: set aside for documentation


def available() -> bool:
    """Whether this machine lets us make one: Linux, root with the right to, and iproute2."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    with ThreadPoolExecutor(1) as thread:  # only a thread that then ends leaves our network
        try:
            thread.submit(os.unshare, os.CLONE_NEWNET).result()
        except OSError:
            return False
    return True


class PrivateNetwork:
    """The namespace, seen from outside.

    `start` runs a function there: what it opens or starts belongs to the namespace, whoever uses it afterwards.
    """

    def __init__(self, proxy_port: int) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="network")
        self._thread.submit(_unshare).result()
        self._proxy_port = proxy_port
        self._names: dict[str, str] = {}
        self._carrying: set[asyncio.Task[None]] = set()
        self._tried: dict[tuple[str, int, int], None] = {}

    def start[T](self, function: Callable[[], T]) -> T:
        """Call `function` in the namespace."""
        return self._thread.submit(function).result()

    @property
    def tried(self) -> list[str]:
        """What was tried to be reached directly, as `host:port`, once for each connection."""
        return [f"{self._names.get(address, address)}:{port}" for address, port, _ in self._tried]

    @property
    def looked_up(self) -> list[str]:
        """The names that were asked for; looking one up is not yet reaching it."""
        return list(self._names.values())

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[PrivateNetwork]:
        """Carry connections to the proxy, answer names, and note what else is tried."""
        loop = asyncio.get_running_loop()
        packets = self.start(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_IPV4)))
        packets.setblocking(False)
        names = self.start(lambda: _bound(socket.SOCK_DGRAM, "0.0.0.0", _DNS))
        names.setblocking(False)
        door = self.start(lambda: _bound(socket.SOCK_STREAM, "127.0.0.1", self._proxy_port))
        server = await asyncio.start_server(self._connected, sock=door)
        loop.add_reader(packets, self._see, packets)
        loop.add_reader(names, self._answer, names)
        try:
            yield self
        finally:
            self._see(packets)
            loop.remove_reader(packets)
            loop.remove_reader(names)
            packets.close()
            names.close()
            server.close()
            for carrying in self._carrying:
                carrying.cancel()
            await asyncio.gather(*self._carrying, return_exceptions=True)
            self._thread.shutdown(wait=False)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._proxy_port)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        except OSError:
            pass  # one side broke off; the other learns it by the end of its connection
        finally:
            writer.close()
            back.close()

    def _see(self, packets: socket.socket) -> None:
        while True:
            try:
                frame = packets.recv(65535)
            except BlockingIOError:
                return
            header = frame[_ETHERNET:]
            protocol, target = header[9], socket.inet_ntoa(header[16:20])
            if target.startswith("127.") or protocol not in (_TCP, _UDP):
                continue
            body = header[(header[0] & 15) * 4 :]
            source, port = struct.unpack(">HH", body[:4])
            opens = protocol == _UDP or body[13] & (_SYN | _ACK) == _SYN
            if opens and _DNS not in (source, port) and not self._is_reply(source):
                self._tried[target, port, source] = None

    def _is_reply(self, source: int) -> bool:
        """A UDP packet from where one was sent to."""
        return any(port == source for _, port, _ in self._tried)

    def _answer(self, names: socket.socket) -> None:
        query, sender = names.recvfrom(4096)
        name, end = _question(query)
        kind = struct.unpack(">H", query[end : end + 2])[0]
        address = next((a for a, known in self._names.items() if known == name), None)
        if address is None:
            address = _NAMED + str(len(self._names) % 254 + 1)
            self._names[address] = name
        answer = _A_RECORD + socket.inet_aton(address) if kind == 1 else b""
        head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1 if answer else 0, 0, 0)
        names.sendto(head + query[12 : end + 4] + answer, sender)


def _unshare() -> None:
    os.unshare(os.CLONE_NEWNET)
    for command in ("link set lo up", "route add local default dev lo"):
        subprocess.run(["ip", *command.split()], check=True)


def _bound(kind: socket.SocketKind, host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    made.bind((host, port))
    return made


def _question(query: bytes) -> tuple[str, int]:
    """The name that a DNS query asks for, and where the question's type begins."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    return ".".join(labels).lower(), at + 1


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
