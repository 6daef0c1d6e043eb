"""What a process in a network of its own tries to reach, and what it does reach."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from addons.matrix.network import PrivateNetwork, available

pytestmark = pytest.mark.skipif(not available(), reason="needs Linux, root and iproute2 to make a network namespace")

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


async def test_only_the_proxy_is_reached_and_all_else_is_named() -> None:
    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"proxy heard " + await reader.read())
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with PrivateNetwork(port).watched() as network:
        command = [sys.executable, "-c", TRY, str(port)]
        process = network.start(lambda: subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        out, _ = await asyncio.to_thread(process.communicate)
    server.close()
    assert out == "ConnectionRefusedError ConnectionRefusedError ConnectionRefusedError\nproxy heard hello\n"
    assert network.tried == ["provider.example:443", "198.51.100.7:80", "198.51.100.7:80", "198.51.100.8:443"]
    assert network.looked_up == ["provider.example", "only-asked.example"]
