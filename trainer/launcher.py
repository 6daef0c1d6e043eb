"""Starting harness processes: each by itself, or as forks of one that has imported the harness already."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import Mapping, Sequence
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
    pid: int = 0

    async def wait(self) -> int:
        return await asyncio.shield(self.ended)


@dataclass(slots=True)
class Preloaded:
    """Sessions as forks of a process that has imported the harness: an async context manager.

    `program` is the harness's console script, in the `bin` of its environment; `modules` are what to import beside it.
    """

    program: Path
    modules: Sequence[str]
    env: Mapping[str, str]
    log: Path
    _process: asyncio.subprocess.Process = field(init=False)
    _reading: asyncio.Task[None] = field(init=False)
    _ready: asyncio.Future[None] = field(init=False)
    _forks: dict[int, _Fork] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def __aenter__(self) -> Self:
        self._ready = asyncio.get_running_loop().create_future()
        with self.log.open("wb") as err:
            self._process = await asyncio.create_subprocess_exec(
                str(self.program.with_name("python")), str(PRELOAD), self.program.name, *self.modules,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=err, env=self.env,
                start_new_session=True,
            )  # fmt: skip
        self._reading = asyncio.create_task(self._read())
        try:
            await self._ready
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for fork in self._forks.values():
            processes.signal_group(fork.pid, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()  # it ends by itself, when it has seen the last of them end
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 5)
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Running:
        """See `Launcher.start`; `argv[0]` is the harness's own program, whatever it says."""
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        fork = self._forks[number] = _Fork(loop.create_future(), loop.create_future())
        request = {"id": number, "argv": list(argv[1:]), "env": dict(env), "cwd": str(cwd), "log": str(log)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        await self._process.stdin.drain()
        fork.pid = await fork.began
        return fork

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._heard(json.loads(line))
        gone = processes.ProcessFailed(f"the preloaded harness ended\n--- {self.log}\n{processes.tail(self.log)}")
        if not self._ready.done():
            self._ready.set_exception(gone)
        for fork in self._forks.values():
            for future in (fork.began, fork.ended):
                if not future.done():
                    future.set_exception(gone)
                    future.exception()  # nobody may be waiting for it any more

    def _heard(self, told: Mapping[str, Any]) -> None:
        if "ready" in told:
            self._ready.set_result(None)
        elif "pid" in told:
            self._forks[told["id"]].began.set_result(told["pid"])
        else:
            self._forks.pop(told["id"]).ended.set_result(told["status"])
