"""All of it: an engine, one proxy, and harness after harness."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from addons.matrix.actor import act
from addons.matrix.engine import WINDOW, Script, ScriptedEngine
from addons.matrix.model import write_model
from addons.matrix.row import Row, row_of, wire_of
from addons.matrix.trial import Bench, trial
from addons.model import ModelFiles
from addons.providers import provider_hosts
from certs import ca, harnesses, isolation
from certs.harnesses import Harness, HarnessError
from replay.reader import Reader
from replay.records import NewSession
from replay.store import Store
from replay.writer import Recorder

_READY_SECONDS, _END_SECONDS = 120.0, 20.0
Tell = Callable[[str, str | Row], None]
"""Told of each harness what it is at, and in the end its row."""


class MatrixError(RuntimeError):
    """The proxy did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`engine` is a vLLM's address, None for one that says what `script` says; `directory` must not exist; `timeout` is
    in seconds; `proxy_arguments` go to mitmdump. The scripted engine has the files of `model`, None for one whose
    tokens are bytes, and a `window` in tokens.
    """

    directory: Path
    root: Path
    timeout: float
    jobs: int = 1
    engine: str | None = None
    isolate: bool = True
    script: Script = act
    window: int = WINDOW
    model: Path | None = None
    proxy_arguments: tuple[str, ...] = ()


async def matrix(chosen: Sequence[Harness], options: Options, tell: Tell) -> list[Row]:
    """Try each of `chosen`; rows in their order.

    Raises:
        MatrixError: the proxy did not start.
    """
    directory = options.directory.absolute()
    directory.mkdir(parents=True)
    async with AsyncExitStack() as stack:
        engine = options.engine
        if engine is None:
            engine = await stack.enter_async_context(_scripted(directory / "model", options))
        home, store_url = directory / "tap", f"sqlite:///{directory / 'harnesstap.db'}"
        flows = directory / "flows.jsonl"
        authority = ca.ensure(home, provider_hosts())
        store = stack.enter_context(Store.open(store_url))
        recorder = stack.enter_context(Recorder(store))
        port = await stack.enter_async_context(_proxy(options, home, engine, store_url, flows))
        bench = Bench(
            directory=directory, home=home, bundle=authority.bundle, proxy_port=port, timeout=options.timeout,
            scripted=options.engine is None, isolated=options.isolate and isolation.why_not() is None,
        )  # fmt: skip
        free = asyncio.Semaphore(options.jobs)

        async def one(harness: Harness) -> Row:
            version = harness.version or ""
            async with free:
                try:
                    tell(harness.name, "installing")
                    log = directory / f"install-{harness.name}.log"
                    program = await asyncio.to_thread(harnesses.install, harness, options.root, log=log)
                    tell(harness.name, "running")
                    name = f"matrix-{harness.name}"
                    session = NewSession(name=name, harness=harness.name, harness_version=harness.version)
                    await asyncio.wrap_future(recorder.open_session(session))
                    run = await trial(bench, harness, program, name)
                    await asyncio.sleep(0.5)  # the proxy hears of closed connections a moment later
                    row = row_of(harness.name, version, run, Reader(store), name, wire_of(flows, name))
                except HarnessError as error:
                    row = Row(harness=harness.name, version=version, faults=(str(error),))
            tell(harness.name, row)
            return row

        return await asyncio.gather(*map(one, chosen))


@asynccontextmanager
async def _scripted(folder: Path, options: Options) -> AsyncIterator[str]:
    model = await asyncio.to_thread(ModelFiles.load, str(options.model or write_model(folder)))
    async with ScriptedEngine(model, options.script, options.window).serving() as url:
        yield url


@asynccontextmanager
async def _proxy(options: Options, home: Path, engine: str, store: str, flows: Path) -> AsyncIterator[int]:
    """`tap up`, with session keys compulsory as beyond loopback, and a second addon that notes requests."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-c", "from addons.cli import app; app()", "up", "--port", str(port)]
    command += ["--home", str(home), "--engine", engine, "--store", store, "--keys", "required", "--"]
    command += ["-s", str(Path(__file__).with_name("flowlog.py")), "--set", f"matrix_flow_log={flows}"]
    command += options.proxy_arguments
    log = flows.with_name("tap.log")
    with log.open("wb") as sink:
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, env=env
        )
    try:
        await _ready(process, port, log)
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            process.kill()


async def _ready(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    """Until the proxy answers for a provider: its port is open earlier."""
    limit = time.monotonic() + _READY_SECONDS
    request = b"GET http://api.openai.com/ready HTTP/1.1\r\nHost: api.openai.com\r\nConnection: close\r\n\r\n"
    while process.returncode is None and time.monotonic() < limit:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            answer = await reader.read()
            writer.close()
        except OSError:  # it does not listen yet, or ends
            await asyncio.sleep(0.2)
            continue
        if answer.startswith(b"HTTP/1.1 4"):
            return
    raise MatrixError(f"the proxy did not start: see {log}")
