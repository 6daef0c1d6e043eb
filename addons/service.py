"""The gateway with all its parts, wired from plain options; the addon starts and stops it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

import aiohttp

from addons.backend import Backend
from addons.calls import Calls
from addons.config import GatewayConfig
from addons.engine import Engine
from addons.errors import EngineUnavailable
from addons.gateway import Gateway
from addons.replies import check_name
from addons.reserve_backend import OfflineBackend
from addons.reserve_options import ReserveOptions
from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder

logger = logging.getLogger(__name__)

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)
"""No total: a long prompt on a busy server may take minutes to its first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """What a user sets. Addresses are URLs; `model` empty means what vLLM says it serves."""

    engine: str
    store: str
    model: str = ""
    parser: str = "auto"
    port: int = 0
    config: GatewayConfig = field(default_factory=GatewayConfig)
    reserve: ReserveOptions | None = None
    """Answer from a stored session; vLLM is asked only where that allows it."""

    @property
    def offline(self) -> bool:
        """No call can come to vLLM."""
        return self.reserve is not None and self.reserve.then == "stop" and not self.reserve.until


class Service:
    """One gateway over one store and one vLLM."""

    def __init__(self, options: ServiceOptions) -> None:
        self._options = options
        self.port = 0
        self._store: Store | None = None
        self._recorder: Recorder | None = None
        self._http: aiohttp.ClientSession | None = None
        self._gateway: Gateway | None = None
        self._calls: Calls | None = None

    async def start(self) -> int:
        """Open the store, check what can be checked, listen; returns the gateway's port.

        A vLLM that is not there yet is no error (calls are answered 503 until it is); one that breaks a promise is.

        Raises:
            CallError, ModelError, UnknownParser, StoreError: what can't work, with what to change.
        """
        options = self._options
        check_name(options.parser)  # the rest of it needs the model, whose vLLM may come up later
        self._store = await asyncio.to_thread(Store.open, options.store)
        self._recorder = Recorder(self._store)
        if lost := await asyncio.wrap_future(self._recorder.sweep()):
            logger.warning("%d turns were open in a process that is gone; they are recorded as aborted", lost)
        self._http = aiohttp.ClientSession(
            timeout=_TIMEOUT, connector=aiohttp.TCPConnector(limit=0), read_bufsize=1 << 20, trust_env=False
        )
        kind = OfflineBackend if options.offline else Backend
        backend = kind(Engine(options.engine, self._http), options.model, options.parser, options.config.reasoning)
        if options.model:
            await asyncio.to_thread(backend.load, options.model)
        try:
            await backend.model()
        except EngineUnavailable as error:
            logger.warning("%s; calls are answered 503 until it is up", error.message)
        self._calls = Calls(options.config, backend, self._recorder, Reader(self._store), options.reserve)
        self._gateway = Gateway(options.config, self._calls)
        self.port = await self._gateway.start(port=options.port)
        return self.port

    def add_traffic(self, session: str, host: str, *, sent: int, received: int) -> None:
        """Record what a session sent beside its model calls."""
        if self._recorder is not None:
            self._recorder.add_traffic(session, host, sent=sent, received=received)

    def forget(self) -> None:
        """Drop what is only cached in memory; everything must go on from the record."""
        if self._calls is not None:
            self._calls.forget()

    async def stop(self) -> None:
        """Stop listening, record calls in flight as aborted, flush the record."""
        if self._gateway is not None:
            await self._gateway.stop()
        if self._http is not None:
            await self._http.close()
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)
        if self._store is not None:
            self._store.close()
