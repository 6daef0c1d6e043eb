"""The server: which page has which address, and how an answer becomes a response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sqlalchemy.exc import DBAPIError
from tokenizers import Tokenizer

from replay import show, versions
from replay.reader import Reader
from replay.store import Store
from replay.tokens import visible
from replay.view import access, groups, listing, queries, session, training, turn
from replay.view.asking import Answer, Ask, File, Moved, Page

HOST = "127.0.0.1"
_HERE = Path(__file__).parent
_SESSION = r"/sessions/{session:[0-9]{1,18}}"
_TURN = _SESSION + r"/turns/{turn:[0-9]{1,18}}"
PAGES: dict[str, Callable[[Ask], Answer]] = {
    "/": lambda _: Moved("/sessions"),
    "/sessions": listing.sessions,
    "/named": listing.named,
    "/turns/{turn:[0-9]{1,18}}": listing.by_turn,
    _SESSION: session.tree,
    _SESSION + "/timings": session.times,
    _SESSION + r"/sequences/{sequence:[0-9]{1,18}}": session.sequence,
    _TURN: turn.page,
    _TURN + "/request.json": turn.request_file,
    _TURN + "/reply.json": turn.reply_file,
    _TURN + r"/images/{image:[0-9]{1,18}}": turn.image,
    "/groups": groups.groups,
    "/group": groups.group,
    "/diff": groups.diff,
    "/training": training.training,
    r"/batches/{batch:[0-9]{1,18}}": training.batch,
}


def application(store: Store, token: str, tokenizer: Tokenizer | None = None) -> web.Application:
    """All pages over a store, for who has the token."""
    templates = _templates()
    app = web.Application(middlewares=[access.guard(token)])
    app.on_response_prepare.append(access.add_headers)
    app.router.add_static("/static", _HERE / "static")
    for path, build in PAGES.items():
        app.router.add_get(path, _handler(store, tokenizer, templates, build))
    return app


async def serve(app: web.Application, port: int, started: Callable[[int], None]) -> None:
    """Serve on loopback until cancelled; `started` is told the port. Raises OSError where it cannot be had."""
    # No access log: the token is in the first address.
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        started(runner.addresses[0][1])
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _handler(
    store: Store, tokenizer: Tokenizer | None, templates: Environment, build: Callable[[Ask], Answer]
) -> Handler:
    def answer(request: web.Request, session_id: int | None) -> web.Response:
        # A page's version is taken before the page: what happens between makes the next one new again.
        version = f'"{queries.version(store.engine, session_id)}"'
        if request.headers.get("If-None-Match") == version:
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers={"ETag": version})
        ask = Ask(Reader(store), tokenizer, request.match_info, request.query)
        match build(ask):
            case Moved(location):
                return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": location})
            case File(body, media_type, name, shown):
                kept = {} if shown else {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
                return web.Response(body=body, content_type=media_type, headers=kept)
            case Page(template, values):
                text = templates.get_template(template).render(values, version=version)
                return web.Response(text=text, content_type="text/html", headers={"ETag": version})

    def told(error: Exception, status: HTTPStatus) -> web.Response:
        text = templates.get_template("error.html").render(status=status, error=error)
        return web.Response(text=text, content_type="text/html", status=status)

    async def handle(request: web.Request) -> web.Response:
        session_id = request.match_info.get("session")
        try:  # in a thread: the database is not asynchronous
            return await asyncio.to_thread(answer, request, None if session_id is None else int(session_id))
        except LookupError as error:
            return told(error, HTTPStatus.NOT_FOUND)
        except ValueError as error:
            return told(error, HTTPStatus.BAD_REQUEST)
        except DBAPIError as error:
            return told(error, HTTPStatus.INTERNAL_SERVER_ERROR)

    return handle


def _templates() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
        # Beside HTML's own characters: lone surrogates, which are no UTF-8, and control characters.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )  # fmt: skip
    env.filters |= {
        "count": lambda number: f"{number:,}",
        "reward": lambda number: "–" if number is None else f"{number:.4g}",
        "seconds": _seconds,
        "versions": versions.told,
        "clock": lambda at: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)),
        "minute": lambda at: time.strftime("%Y-%m-%d %H:%M", time.localtime(at)),
        "figure": lambda value: f"{value:.4g}" if isinstance(value, float) else "–" if value is None else str(value),
        "pretty": show.pretty,
        "group_address": listing.group_address,
    }
    env.globals["counted"] = show.counted
    return env


def _seconds(number: float | None, sign: str = "") -> str:
    return "–" if number is None else f"{number:{sign}.2f}"
