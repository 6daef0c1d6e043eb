"""The gateway: an HTTP server on loopback that is, to a harness, its provider.

It knows nothing of mitmproxy: the interceptor reroutes flows here, and a plain base URL works too. A response
written inside a proxy hook could only be whole; here a reply streams as it is sampled, a waiting harness gets
its provider's keep-alive, and the turn is committed before the terminal event leaves.
"""

from __future__ import annotations

import hmac
import logging
import time
from typing import Any

import orjson
from aiohttp import web

from addons.body import read_json
from addons.caller import TOKEN_HEADER, Caller, caller_of
from addons.calls import Calls, Request
from addons.config import GatewayConfig
from addons.dialects import chat
from addons.dialects.base import ERROR_BODY, SERVED, Emitter, Logprobs
from addons.errors import BadRequest, CallError, NotFound, PayloadTooLarge, Unsupported
from addons.ids import new_id
from addons.listings import listing
from addons.providers import Route, classify
from addons.turn import Listener, LiveTurn

logger = logging.getLogger(__name__)


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
        """Listen; returns the port. A client that leaves cancels its handler, and so its sampling."""
        app = web.Application(client_max_size=self._config.body_limit)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=2)
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
            return _error(route, error)

    async def _serve(self, request: web.Request, route: Route, caller: Caller) -> web.StreamResponse:
        match route.kind:
            case "model":
                return await self._model_call(request, route, caller)
            case "models":
                return _json(200, listing(route, (await self._calls.backend.model()).facts))
            case "housekeeping" if route.inert is not None:
                return web.Response(status=route.inert.status, text=route.inert.body, content_type="application/json")
            case "count":
                raise Unsupported(f"{route.path}: token counts of the {route.dialect} dialect are not served yet")
            case _:
                raise NotFound(f"Unknown request URL: {request.method} {request.path}", code="unknown_url")

    async def _model_call(self, http: web.Request, route: Route, caller: Caller) -> web.StreamResponse:
        received_at = time.time()
        if route.dialect not in SERVED:
            raise Unsupported(
                f"harnesstap does not serve the {route.dialect!r} dialect yet ({http.path}); "
                f"served: {', '.join(sorted(SERVED))}"
            )
        dialect = SERVED[route.dialect]
        raw = await _body(http)
        body, readable = read_json(raw)
        call = dialect.read(readable)
        if readable is not body:
            call = call.reporting("lone surrogates")
        request = Request(dialect, http.path, caller, body, raw, call, received_at)
        turn = await self._calls.begin(request)
        emitter = dialect.emitter(call, new_id(dialect.reply_id), int(received_at))
        with Listener(turn) as listener:
            if call.stream:
                return await self._stream(http, turn, listener, emitter)
            return await self._whole(turn, listener, emitter)

    async def _whole(self, turn: LiveTurn, listener: Listener, emitter: Emitter) -> web.StreamResponse:
        while not turn.over:
            await listener.hear(None)
        if turn.error is not None:
            raise turn.error
        assert turn.reply is not None
        body = emitter.whole(turn.reply, _logprobs(turn, listener))
        self._calls.delivered(turn)
        return web.Response(body=body, content_type="application/json")

    async def _stream(
        self, http: web.Request, turn: LiveTurn, listener: Listener, emitter: Emitter
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": emitter.content_type, "cache-control": "no-cache"})
        while True:
            deltas = await listener.hear(self._config.keepalive)
            if turn.error is not None and not response.prepared:
                raise turn.error
            if not response.prepared:
                # Only now, so that a refusal of the engine still has its own HTTP status.
                await response.prepare(http)
                await response.write(emitter.start(len(turn.prompt)))
            if deltas is None:
                await response.write(emitter.silence())
            elif deltas:
                # Asked-for logprobs ride on the first delta: tokens and deltas do not line up.
                await response.write(b"".join(emitter.delta(d, _logprobs(turn, listener)) for d in deltas))
            if turn.over:
                break
        if turn.error is not None:
            await response.write(emitter.fail(turn.error))
            return response
        assert turn.reply is not None
        await response.write(emitter.finish(turn.reply, _logprobs(turn, listener)))
        await response.write_eof()
        self._calls.delivered(turn)
        return response


class _Forbidden(CallError):
    status = 407
    kind = "invalid_request"


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
    except web.HTTPException as error:
        raise BadRequest(f"Unreadable request body: {error.text}") from error


def _host_of_base_url(path: str) -> str:
    """The provider that a caller with a plain base URL means, told by the path alone."""
    if path.startswith("/v1/messages"):
        return "api.anthropic.com"
    if path.startswith(("/v1beta", "/v1alpha")):
        return "generativelanguage.googleapis.com"
    return "api.openai.com"


def _json(status: int, body: Any) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


def _error(route: Route, error: CallError) -> web.Response:
    body = ERROR_BODY.get(route.dialect or "", chat.error_body)(error)
    response = _json(error.status, body)
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response
