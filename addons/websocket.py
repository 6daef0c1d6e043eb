"""Responses over a WebSocket: each `response.create` message is a call, each event of its reply a message.

As at the provider, one connection answers one call at a time, in the order they came. It is read meanwhile all the
same, since only a reader sees that the other side has left, and with it whoever wanted the reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

import orjson
from aiohttp import WSCloseCode, WSMsgType, web

from addons.answer import Answer
from addons.dialects import responses
from addons.errors import CallError, Fault, TooManyRequests

logger = logging.getLogger(__name__)

_CLOSING = 2.0
"""Seconds that the other side has to answer a close."""
WAITING = 16
"""Calls of one connection that may wait for their turn."""


class Socket:
    """One connection.

    Args:
        read: a message to the answer it gets; raises CallError.
        message_limit: bytes of one message.
    """

    def __init__(self, read: Callable[[bytes], Awaitable[Answer]], message_limit: int) -> None:
        self._read = read
        self._connection = web.WebSocketResponse(max_msg_size=message_limit, timeout=_CLOSING)
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(WAITING)

    async def serve(self, upgrade: web.Request) -> web.WebSocketResponse:
        """Answer calls until the harness closes the connection. A call it leaves behind is broken off."""
        await self._connection.prepare(upgrade)
        answering = asyncio.create_task(self._answer_all())
        try:
            async for message in self._connection:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    await self._take(message.data.encode() if isinstance(message.data, str) else message.data)
        finally:
            answering.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await answering
        return self._connection

    async def close(self) -> None:
        """The proxy is going away."""
        await self._connection.close(code=WSCloseCode.GOING_AWAY, message=b"the proxy is shutting down")

    async def _take(self, raw: bytes) -> None:
        try:
            self._waiting.put_nowait(raw)
        except asyncio.QueueFull:
            await self._fail(TooManyRequests(f"More than {WAITING} calls wait on this connection."))

    async def _answer_all(self) -> None:
        while True:
            raw = await self._waiting.get()
            try:
                await self._answer(raw)
            except CallError as error:
                await self._fail(error)
            except ConnectionError:
                raise
            except Exception as fault:
                logger.exception("a call over a WebSocket failed by a fault of ours")
                await self._fail(Fault(type(fault).__name__))

    async def _answer(self, raw: bytes) -> None:
        async with aclosing((await self._read(raw)).chunks()) as chunks:
            async for chunk in chunks:
                for frame in responses.frames(chunk):
                    await self._connection.send_str(frame)

    async def _fail(self, error: CallError) -> None:
        await self._connection.send_str(orjson.dumps(responses.socket_error(error)).decode())
