"""The gateway: an HTTP server on loopback that is, to a harness, its provider.

It knows nothing of mitmproxy: the interceptor reroutes flows here, and a plain base URL works too. A response
written inside a proxy hook could only be whole; here a reply streams as it is sampled, a waiting harness gets
its provider's keep-alive, and the turn is committed before the terminal event leaves.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from addons.body import read_json
from addons.caller import TOKEN_HEADER, Caller, caller_of
from addons.calls import Calls, Request
from addons.config import GatewayConfig
from addons.conversation import Call
from addons.dialects import responses
from addons.dialects.base import DIALECTS, Dialect, Emitter, Logprobs, Target
from addons.errors import BadRequest, CallError, Fault, NotFound, PayloadTooLarge
from addons.ids import new_id
from addons.listings import listing
from addons.providers import Route, classify
from addons.turn import Listener, LiveTurn

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
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; returns the port. A client that leaves cancels its handler, and with the last one the sampling."""
        app = web.Application(client_max_size=self._config.body_limit)
        app.router.add_route("*", "/{path:.*}", self._handle)
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
                return await self._socket(request, caller)
            case "model":
                return await self._model_call(request, route, caller)
            case "models":
                return _json(200, listing(route, (await self._calls.backend.model()).facts))
            case "count":
                return await self._count(request, route, caller)
            case "housekeeping" if route.inert is not None:
                return web.Response(status=route.inert.status, text=route.inert.body, content_type="application/json")
            case _:
                raise NotFound(f"Unknown request URL: {request.method} {request.path}", code="unknown_url")

    async def _model_call(self, http: web.Request, route: Route, caller: Caller) -> web.StreamResponse:
        received_at = time.time()
        dialect = _dialect(route)
        raw = await _body(http)
        body, readable = read_json(raw)
        target = Target(route.model or "", bool(route.stream), http.query.get("alt") == "sse")
        call = self._read(dialect, readable, target, caller)
        if readable is not body:
            call = call.reporting("lone surrogates")
        request = Request(dialect, http.path, caller, body, raw, call, received_at, new_id(dialect.reply_id))
        emitter = dialect.emitter(call, request.reply_id, int(received_at))
        if call.options.get("generate") is False:
            return await self._warm(request, emitter)
        try:
            turn = await self._calls.begin(request)
        except CallError as error:
            refusal = dialect.refusal_in_stream(emitter, error)
            if refusal is None:
                raise
            return web.Response(body=refusal, headers=_stream_headers(emitter))
        emitter = dialect.emitter(call, turn.reply_id, int(turn.received_at))  # a retry gets the first call's reply
        with Listener(turn) as listener:
            if call.stream:
                return await self._stream(http, turn, listener, emitter)
            return await self._whole(http, turn, listener, emitter)

    def _read(self, dialect: Dialect, body: Any, target: Target, caller: Caller) -> Call:
        if dialect.name == responses.NAME and isinstance(body, dict):
            return self._calls.responses.read(body, caller.session)
        return dialect.read(body, target)

    async def _whole(
        self, http: web.Request, turn: LiveTurn, listener: Listener, emitter: Emitter
    ) -> web.StreamResponse:
        while not turn.over:
            await listener.hear(None)
        if turn.error is not None:
            raise turn.error
        assert turn.reply is not None
        body = emitter.whole(turn.reply, _logprobs(turn, listener))
        response = web.Response(body=body, content_type="application/json")
        await response.prepare(http)
        await response.write_eof()
        self._calls.delivered(turn)
        return response

    async def _stream(
        self, http: web.Request, turn: LiveTurn, listener: Listener, emitter: Emitter
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_stream_headers(emitter))
        async with aclosing(self._sent(turn, listener, emitter)) as chunks:
            async for chunk in chunks:
                if not response.prepared:
                    # Only now, so that a refusal of the engine still has its own HTTP status.
                    await response.prepare(http)
                if chunk:
                    await response.write(chunk)
        await response.write_eof()
        self._calls.delivered(turn)
        return response

    async def _sent(self, turn: LiveTurn, listener: Listener, emitter: Emitter) -> AsyncGenerator[bytes]:
        """A streamed reply, piece by piece as it is sampled.

        Raises:
            CallError: the engine refused before it sampled anything.
        """
        started = False
        while True:
            deltas = await listener.hear(self._config.keepalive)
            if turn.error is not None and not started:
                raise turn.error
            if not started:
                started = True
                yield emitter.start(len(turn.prompt))
            if deltas is None:
                yield emitter.silence()
            elif deltas:
                # Asked-for logprobs ride on the first delta: tokens and deltas do not line up.
                yield b"".join(emitter.delta(delta, _logprobs(turn, listener)) for delta in deltas)
            if turn.over:
                break
        if turn.error is not None:
            yield emitter.fail(turn.error)
            return
        assert turn.reply is not None
        yield emitter.finish(turn.reply, _logprobs(turn, listener))

    async def _warm(self, request: Request, emitter: Emitter) -> web.StreamResponse:
        """A call that asks for no sampling: answered, and kept to be continued, but no turn."""
        assert isinstance(emitter, responses.Emitter)
        self._calls.responses.remember(request.reply_id, request.body, (), request.caller.session)
        return web.Response(body=emitter.warm(), headers=_stream_headers(emitter))

    async def _count(self, http: web.Request, route: Route, caller: Caller) -> web.Response:
        dialect = _dialect(route)
        _, readable = read_json(await _body(http))
        if dialect.read_count is None or dialect.count_reply is None:
            raise NotFound(f"Unknown request URL: {http.method} {http.path}", code="unknown_url")
        if dialect.name == responses.NAME and isinstance(readable, dict):
            call = self._calls.responses.read(readable, caller.session, counting=True)
        else:
            call = dialect.read_count(readable, Target(route.model or ""))
        return _json(200, dialect.count_reply(await self._calls.count(caller, call)))

    async def _socket(self, http: web.Request, caller: Caller) -> web.StreamResponse:
        """Responses over a WebSocket: each `response.create` message is a call, one after the other."""
        if http.headers.get("upgrade", "").lower() != "websocket":
            raise NotFound(f"Unknown request URL: {http.method} {http.path}", code="unknown_url")
        if not self._config.websocket:
            return web.Response(status=426, headers={"upgrade": "h2c"}, text="WebSocket is off; use POST.")
        socket = web.WebSocketResponse(max_msg_size=self._config.body_limit)
        await socket.prepare(http)
        async for message in socket:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                continue
            raw = message.data.encode() if isinstance(message.data, str) else message.data
            try:
                await self._socket_call(socket, http, caller, raw)
            except CallError as error:
                await socket.send_str(orjson.dumps(responses.socket_error(error)).decode())
            except ConnectionError:
                raise
            except Exception as fault:
                logger.exception("a call over a WebSocket failed by a fault of ours")
                told = responses.socket_error(Fault(type(fault).__name__))
                await socket.send_str(orjson.dumps(told).decode())
        return socket

    async def _socket_call(self, socket: web.WebSocketResponse, http: web.Request, caller: Caller, raw: bytes) -> None:
        received_at = time.time()
        message, readable = read_json(raw)
        if not isinstance(message, dict) or message.get("type") != "response.create":
            raise BadRequest(
                f"Invalid value for 'type': {message.get('type') if isinstance(message, dict) else message!r}.",
                param="type",
            )
        body = {key: value for key, value in readable.items() if key != "type"}
        dialect = DIALECTS[responses.NAME]
        call = replace(self._calls.responses.read(body, caller.session), stream=True)
        request = Request(dialect, http.path, caller, body, raw, call, received_at, new_id(dialect.reply_id))
        emitter = responses.Emitter(call, request.reply_id, int(received_at))
        if call.options.get("generate") is False:
            self._calls.responses.remember(request.reply_id, body, (), caller.session)
            await _send_frames(socket, emitter.warm())
            return
        try:
            turn = await self._calls.begin(request)
        except CallError as error:
            if (refusal := emitter.refuse(error)) is None:
                raise
            await _send_frames(socket, refusal)
            return
        emitter = responses.Emitter(call, turn.reply_id, int(turn.received_at))
        with Listener(turn) as listener:
            async with aclosing(self._sent(turn, listener, emitter)) as chunks:
                async for chunk in chunks:
                    await _send_frames(socket, chunk)
        self._calls.delivered(turn)


class _Forbidden(CallError):
    status = 407
    kind = "invalid_request"


async def _send_frames(socket: web.WebSocketResponse, chunk: bytes) -> None:
    for frame in responses.frames(chunk):
        await socket.send_str(frame)


def _dialect(route: Route) -> Dialect:
    assert route.dialect is not None, route
    return DIALECTS[route.dialect]


def _logprobs(turn: LiveTurn, listener: Listener) -> Logprobs:
    """Logprobs of the sampled tokens that were not answered yet; None when nobody asked, or there are none.

    Like the provider's, without the end-of-turn token, which is no part of the content.
    """
    if not turn.call.options.get("logprobs"):
        return None
    out: list[dict[str, Any]] = []
    for token, value in listener.unreported():
        text = turn.model.files.tokenizer.decode([token])
        out.append({"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []})
    return out or None


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


def _stream_headers(emitter: Emitter) -> dict[str, str]:
    return {"content-type": emitter.content_type, "cache-control": "no-cache"}


def _json(status: int, body: Any) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


def _error(route: Route, error: CallError) -> web.Response:
    response = _json(error.status, DIALECTS[route.dialect or "chat"].error_body(error))
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response
