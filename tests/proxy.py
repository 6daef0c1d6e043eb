"""A real mitmdump with the addon, as a process, and clients that reach providers through it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from certs import keys
from certs.environment import harness_environment, proxy_url

ROOT = Path(__file__).parents[1]


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Proxy:
    """A running mitmdump."""

    port: int
    home: Path
    store: str
    log: Path
    process: asyncio.subprocess.Process
    session_port: int = 0
    """Of the session whose own port it is, where there is one."""

    def environment(self, session: str | None = None, key: str | None = None) -> dict[str, str]:
        """What a harness process gets, on top of a bare environment."""
        if session is not None and key is None:
            key = keys.session_key(self.home, session)
        url = proxy_url("127.0.0.1", self.port, session, key)
        bare = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**bare, "HOME": str(self.home), **harness_environment(url, self.home / "certs" / "bundle.pem")}

    async def run(
        self, *command: str, session: str | None = None, key: str | None = None, env: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Run a command as a harness; its exit code and output."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**self.environment(session, key), **(env or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def python(self, script: str, session: str | None = None, **env: str) -> str:
        """Run a Python client behind the proxy; its output, failing the test when it fails."""
        code, out = await self.run(sys.executable, "-c", script, session=session, env=env)
        assert code == 0, f"{out}\n{self.log.read_text()[-3000:]}"
        return out


@asynccontextmanager
async def mitmdump(
    folder: Path, engine: str, *, wait: bool = True, modes: Sequence[str] = (), listen: str | None = "127.0.0.1",
    **options: str,
) -> AsyncIterator[Proxy]:  # fmt: skip
    """Run `mitmdump -s addons/intercept.py` over `engine` until the block ends; `modes` are further ways in."""
    port, home, log = free_port(), folder / "home", folder / "mitmdump.log"
    store = f"sqlite:///{folder / 'record.db'}"
    settings = {"tap_engine": engine, "tap_store": store, "tap_home": str(home), **options}
    command = [str(Path(sys.executable).with_name("mitmdump")), "-s", str(ROOT / "addons" / "intercept.py")]
    command += ["--listen-port", str(port), *(() if listen is None else ("--listen-host", listen))]
    for mode in ("regular", *modes) if modes else ():
        command += ["--mode", mode]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    with log.open("w") as sink:
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}  # the log is read while it runs
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=env, stdout=sink, stderr=sink)
    proxy = Proxy(port, home, store, log, process)
    try:
        if wait:
            await _listening(proxy)
        yield proxy
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()
                raise AssertionError(f"mitmdump did not end when asked to: {log.read_text()[-3000:]}") from None


async def _listening(proxy: Proxy) -> None:
    """Until it answers for a provider: the port is open earlier, while the addon is still being loaded."""
    for _ in range(600):
        assert proxy.process.returncode is None, proxy.log.read_text()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.write(b"GET http://api.openai.com/ready HTTP/1.1\r\nHost: api.openai.com\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 4"), answer
        return
    raise AssertionError(f"mitmdump does not listen: {proxy.log.read_text()}")
