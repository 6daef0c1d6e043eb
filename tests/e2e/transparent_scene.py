"""The scene of test_ways_in's transparent mode, run as a process in a network namespace of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from addons.model import ModelFiles
from replay.reader import Reader
from replay.store import Store
from tests.conftest import TINY
from tests.proxy import free_port, mitmdump
from tests.scripted_engine import ScriptedEngine

BODY = '{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
NETWORK = (
    "ip link set lo up",
    "ip link add hole type veth peer name end",
    "ip link set end up",
    "ip address add 10.99.0.1/24 dev hole",
    "ip link set hole up arp off",
    "ip route add default dev hole",
)


def redirected(port: int) -> bool:
    """Make the network, in which what is for any host's port 443 comes to `port`."""
    for command in NETWORK:
        subprocess.run(command.split(), check=True)
    redirect = f"iptables -t nat -A OUTPUT -p tcp --dport 443 -j REDIRECT --to-ports {port}"
    done = subprocess.run(redirect.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"iptables cannot: {done.stderr.strip()}")
    return done.returncode == 0


async def scene(folder: Path, port: int) -> None:
    async for engine in ScriptedEngine(ModelFiles.load(str(TINY))).run():
        engine.say("by transparent")
        modes = [f"transparent@127.0.0.1:{port}"]
        async with mitmdump(folder, engine.url, modes=modes, tap_session_ports=f"seen={port}") as proxy:
            words = ["curl", "-sS", "-m", "20", "--cacert", str(proxy.home / "certs" / "bundle.pem"), "-d", BODY]
            words += ["--resolve", "api.openai.com:443:192.0.2.7", "https://api.openai.com/v1/chat/completions"]
            code, out = await proxy.run("env", "-i", *words)
            if code or "by transparent" not in out:
                print(out, proxy.log.read_text())
                sys.exit(1)
            with Store.open(proxy.store) as store:
                reader = Reader(store)
                [turn] = reader.turns(reader.session("seen"))
                print(f"by transparent: {turn.purpose}")


if __name__ == "__main__":
    port = free_port()
    if redirected(port):
        asyncio.run(scene(Path(sys.argv[1]), port))
