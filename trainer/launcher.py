"""Starting harness processes: each by itself, or as forks of one that has imported the harness already."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from trainer import processes

PRELOAD = Path(__file__).with_name("preload.py")


class Running(Protocol):
    """A harness process: the leader of its own process group."""

    @property
    def pid(self) -> int:
        """Its id."""

    async def wait(self) -> int:
        """Its exit status, once it has ended; negative for a signal."""


class Launcher(Protocol):
    """How one harness is started."""

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Running:
        """Start `argv` in `cwd` with `env` as its whole environment; its output goes to `log`, its input is empty.

        Both paths are absolute.
        """


class Plain:
    """Every session a process of its own."""

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Running:
        """See `Launcher.start`."""
        with log.open("wb") as out:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )


@dataclass(slots=True)
class _Fork:
    began: asyncio.Future[int]
    ended: asyncio.Future[int]
    unwanted: bool = False

    @property
    def pid(self) -> int:
        return self.began.result()

    async def wait(self) -> int:
        return await asyncio.shield(self.ended)

    def end(self) -> None:
        """End it now, or as soon as it begins."""
        self.unwanted = True
        if self.began.done() and self.began.exception() is None:
            processes.signal_group(self.pid, signal.SIGKILL)


class _Lines(asyncio.SubprocessProtocol):
    """What a process writes to stdout, line by line, and that it is gone.

    Callbacks of the loop, and no task: a task that reads would be cancelled with all others where a loop is left in a
    hurry, and those that wait for what it reads would wait for ever.
    """

    def __init__(self, heard: Callable[[Mapping[str, Any]], None], gone: Callable[[], None]) -> None:
        self._heard, self._gone, self._rest = heard, gone, b""
        self.ended = asyncio.get_running_loop().create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._heard(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)
        self._gone()


@dataclass(slots=True)
class Preloaded:
    """Sessions as forks of a process that has imported the harness: an async context manager.

    `program` is the harness's console script, in the `bin` of its environment; `modules` are what to import beside it.
    """

    program: Path
    modules: Sequence[str]
    env: Mapping[str, str]
    log: Path
    _process: asyncio.SubprocessTransport = field(init=False)
    _lines: _Lines = field(init=False)
    _ready: asyncio.Future[None] = field(init=False)
    _forks: dict[int, _Fork] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        with self.log.open("wb") as err:
            self._process, self._lines = await loop.subprocess_exec(
                lambda: _Lines(self._heard, self._gone),
                str(self.program.with_name("python")), str(PRELOAD), self.program.name, *self.modules,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=err, env=self.env,
                start_new_session=True,
            )  # fmt: skip
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for fork in self._forks.values():
            fork.end()
        self._stdin.close()  # it ends by itself, when it has seen the last of them end
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._lines.ended), 5)
        with suppress(ProcessLookupError):
            self._process.kill()
        await asyncio.shield(self._lines.ended)

    @property
    def _stdin(self) -> asyncio.WriteTransport:
        pipe = self._process.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        return pipe

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Running:
        """See `Launcher.start`; `argv[0]` is the harness's own program, whatever it says."""
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        fork = _Fork(loop.create_future(), loop.create_future())
        if self._lines.ended.done():
            raise self._failure()
        self._forks[number] = fork
        request = {"id": number, "argv": list(argv[1:]), "env": dict(env), "cwd": str(cwd), "log": str(log)}
        self._stdin.write(json.dumps(request).encode() + b"\n")
        try:
            await asyncio.shield(fork.began)
        except asyncio.CancelledError:
            fork.end()
            raise
        return fork

    def _failure(self) -> processes.ProcessFailed:
        return processes.ProcessFailed(f"the preloaded harness ended\n--- {self.log}\n{processes.tail(self.log)}")

    def _gone(self) -> None:
        forks = self._forks.values()
        waiting: list[asyncio.Future[Any]] = [self._ready, *(f.began for f in forks), *(f.ended for f in forks)]
        left = [future for future in waiting if not future.done()]
        if left:
            failure = self._failure()  # reads the log: once, and not at a good end
            for future in left:
                future.set_exception(failure)
                future.exception()  # nobody may be waiting for it any more

    def _heard(self, told: Mapping[str, Any]) -> None:
        if "ready" in told:
            self._ready.set_result(None)
        elif "pid" in told:
            fork = self._forks[told["id"]]
            fork.began.set_result(told["pid"])
            if fork.unwanted:
                fork.end()
        else:
            self._forks.pop(told["id"]).ended.set_result(told["status"])
