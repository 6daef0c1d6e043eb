"""The gateway: an HTTP server on loopback that is, to a harness, its provider.

It knows nothing of mitmproxy: the interceptor reroutes flows here, and a plain base URL works too. A response
written inside a proxy hook could only be whole; here a reply streams as it is sampled, a waiting harness gets
its provider's keep-alive, and the turn is committed before the terminal event leaves.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from contextlib import aclosing
from typing import Any
from weakref import WeakSet

import orjson
from aiohttp import web

from addons.answer import Answer
from addons.caller import TOKEN_HEADER, Caller, caller_of
from addons.calls import Calls
from addons.config import GatewayConfig
from addons.dialects.base import DIALECTS, Dialect, Target
from addons.errors import BadRequest, CallError, Fault, NotFound, PayloadTooLarge
from addons.listings import listing
from addons.providers import Route, classify
from addons.websocket import Socket

logger = logging.getLogger(__name__)

_HEADER_LIMIT = 1 << 16
"""Bytes of one header line: harnesses send metadata in some."""


class Gateway:
    """Serves every provider's routes on one port.

    Args:
        config: settings.
        calls: places calls and keeps their record.
    """

    def __init__(self, config: GatewayConfig, calls: Calls) -> None:
        self._config = config
        self._calls = calls
        self._runner: web.AppRunner | None = None
        self._sockets: WeakSet[Socket] = WeakSet()
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; returns the port. A client that leaves cancels its handler, and with the last one the sampling."""
        app = web.Application(client_max_size=self._config.body_limit)
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.on_shutdown.append(self._close_sockets)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=2,
            max_line_size=_HEADER_LIMIT, max_field_size=_HEADER_LIMIT,
        )  # fmt: skip
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        return self.port

    async def stop(self) -> None:
        """Stop listening; calls in flight are recorded as aborted."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _close_sockets(self, _: web.Application) -> None:
        """A WebSocket has no end of its own to wait for."""
        await asyncio.gather(*(socket.close() for socket in self._sockets))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get(TOKEN_HEADER, "")
        trusted = bool(self._config.token) and hmac.compare_digest(token.encode(), self._config.token.encode())
        caller = caller_of(request.headers, trusted=trusted, default_host=_host_of_base_url(request.path))
        route = classify(request.method, caller.host, request.path_qs, self._config.extra_providers)
        try:
            if not trusted and not self._config.open_access:
                raise _Forbidden("This gateway serves the proxy only; set HTTPS_PROXY, see `tap env`.")
            return await self._serve(request, route, caller)
        except CallError as error:
            response = _error(route, error)
            if not request.content.is_eof() or request.content.exception() is not None:
                response.force_close()  # the rest of the body is still on its way, or will never make sense
            return response
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as fault:
            logger.exception("%s %s failed by a fault of ours", request.method, request.path)
            return _error(route, Fault(type(fault).__name__))

    async def _serve(self, request: web.Request, route: Route, caller: Caller) -> web.StreamResponse:
        match route.kind:
            case "model" if request.method == "GET":
                return await self._socket(request, route, caller)
            case "model" | "compact":
                return await self._model_call(request, route, caller)
            case "stored":
                assert route.reply is not None, route
                return _json(200, orjson.Fragment(self._calls.stored(_dialect(route), route.reply, caller)))
            case "models":
                return _json(200, listing(route, (await self._calls.backend.model()).facts))
            case "count":
                return await self._count(request, route, caller)
            case "housekeeping" if route.inert is not None:
                return web.Response(status=route.inert.status, text=route.inert.body, content_type="application/json")
            case _:
                raise NotFound(f"Unknown request URL: {request.method} {request.path}", code="unknown_url")

    async def _model_call(self, http: web.Request, route: Route, caller: Caller) -> web.StreamResponse:
        target = Target(
            route.model or "", bool(route.stream), http.query.get("alt") == "sse", compact=route.kind == "compact",
            provider=route.provider,
        )  # fmt: skip
        request = await self._calls.read(_dialect(route), http.path, target, caller, await _body(http))
        answer = Answer(self._calls, request, self._config.keepalive)
        response = web.StreamResponse(headers={"content-type": answer.content_type, "cache-control": "no-cache"})
        try:
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    if not response.prepared:
                        # Only now, so that a refusal of the engine still has its own HTTP status.
                        if not request.call.stream:
                            response.content_length = len(chunk)
                        await response.prepare(http)
                    if chunk:
                        await response.write(chunk)
            await response.write_eof()
        except ConnectionError:
            logger.debug("%s %s: the caller has left", http.method, http.path)  # aiohttp would log it as a fault
        except Exception:
            if response.prepared and http.transport is not None:
                http.transport.abort()  # an error's response would be bytes in the middle of this one
            raise
        return response

    async def _socket(self, http: web.Request, route: Route, caller: Caller) -> web.StreamResponse:
        if http.headers.get("upgrade", "").lower() != "websocket":
            raise NotFound(f"Unknown request URL: {http.method} {http.path}", code="unknown_url")
        if not self._config.websocket:
            return web.Response(status=426, headers={"upgrade": "h2c"}, text="WebSocket is off; use POST.")

        async def read(message: bytes) -> Answer:
            request = await self._calls.read(_dialect(route), http.path, Target(socket=True), caller, message)
            return Answer(self._calls, request, self._config.keepalive)

        socket = Socket(read, self._config.body_limit)
        self._sockets.add(socket)
        return await socket.serve(http)

    async def _count(self, http: web.Request, route: Route, caller: Caller) -> web.Response:
        dialect = _dialect(route)
        call = await self._calls.read_count(dialect, Target(route.model or ""), caller, await _body(http))
        assert dialect.count_reply is not None, dialect.name
        return _json(200, dialect.count_reply(await self._calls.count(caller, call)))


class _Forbidden(CallError):
    status = 407
    kind = "invalid_request"


def _dialect(route: Route) -> Dialect:
    assert route.dialect is not None, route
    return DIALECTS[route.dialect]


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise PayloadTooLarge(f"Request body too large: {error.text}") from error
    except (web.HTTPException, web.RequestPayloadError) as error:
        encoding = request.headers.get("content-encoding", "none")
        raise BadRequest(f"The request body cannot be read (content-encoding: {encoding}): {error}") from error


def _host_of_base_url(path: str) -> str:
    """The provider that a caller with a plain base URL means, told by the path alone."""
    if path.startswith("/v1/messages"):
        return "api.anthropic.com"
    if path.startswith(("/v1beta", "/v1alpha")) or (path.startswith("/v1/models/") and ":" in path):
        return "generativelanguage.googleapis.com"
    return "api.openai.com"


def _json(status: int, body: Any) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


def _error(route: Route, error: CallError) -> web.Response:
    response = _json(error.status, DIALECTS[route.dialect or "chat"].error_body(error))
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response
