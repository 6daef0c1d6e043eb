"""The scene of test_loopback_only, run as a process that moves itself into a network namespace first."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from addons.model import ModelFiles
from certs import harnesses
from replay.reader import Reader
from replay.store import Store
from tests.conftest import TINY
from tests.proxy import mitmdump
from tests.scripted_engine import ScriptedEngine

CALL = '<tool_call>\n{{"name": "bash", "arguments": {{"command": "{}"}}}}\n</tool_call>'
IPV4, ETHERNET = 0x0800, 14


class Watch(threading.Thread):
    """Notes the destination of every IPv4 packet in the namespace that is not loopback's."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[str] = []
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))

    def run(self) -> None:
        while True:
            frame, (_, protocol, *_) = self._socket.recvfrom(65535)
            if protocol == IPV4:
                target = ipaddress.IPv4Address(frame[ETHERNET + 16 : ETHERNET + 20])
                if not target.is_loopback:
                    self.seen.append(str(target))


def isolate() -> None:
    os.unshare(os.CLONE_NEWNET)
    for command in (
        "link set lo up",
        "link add hole type veth peer name end",
        "link set end up",
        "address add 10.99.0.1/24 dev hole",
        "link set hole up arp off",
        "route add default dev hole",
    ):
        subprocess.run(["ip", *command.split()], check=True)


async def scene(mini: Path, folder: Path) -> None:
    watch = Watch()
    watch.start()
    async for engine in ScriptedEngine(ModelFiles.load(str(TINY))).run():
        engine.say(CALL.format("echo made > made.txt"))
        engine.say(CALL.format("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"))
        async with mitmdump(folder, engine.url) as proxy:
            spec = harnesses.get("mini-swe-agent")
            home = folder / "harness-home"
            home.mkdir()
            env = harnesses.environment(spec, program=mini, home=home, proxy=proxy.environment("watched"))
            process = await asyncio.create_subprocess_exec(
                *spec.argv("make a file", mini), cwd=home, env=env, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            out, _ = await asyncio.wait_for(process.communicate(), 120)
            if process.returncode or not (home / "made.txt").exists():
                print(out.decode(), proxy.log.read_text())
            with Store.open(proxy.store) as store:
                reader = Reader(store)
                turns = reader.turns(reader.session("watched"))
        beyond = len(watch.seen)
        print(
            f"harness exit {process.returncode}, {len(turns)} turns, {beyond} packets beyond loopback {watch.seen[:5]}"
        )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        control.sendto(b"x", ("192.0.2.1", 9))
    for _ in range(100):
        if "192.0.2.1" in watch.seen:
            print("control seen")
            break
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    isolate()
    asyncio.run(scene(Path(sys.argv[1]), Path(sys.argv[2])))
