"""Who may look: a browser of this machine that was given the token, asking for this machine by its own name."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
HEADERS = {
    # What a model wrote is on these pages: nothing in it may run, load or be sent anywhere.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def new_token() -> str:
    """A secret for a URL."""
    return secrets.token_urlsafe(32)


def guard(token: str) -> Middleware:
    """Lets through who has the token: from the URL, where it becomes a cookie and leaves the address bar.

    The Host is checked first: a web page elsewhere may point a name of its own at 127.0.0.1.
    """
    # Cookies know no ports: servers side by side need names of their own.
    cookie = f"replay-view-{hashlib.sha256(token.encode()).hexdigest()[:12]}"

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _is_loopback(request.headers.get("Host", "")):
            raise web.HTTPForbidden(text="This page answers to 127.0.0.1 and localhost only.\n")
        given = request.query.get("token")
        if given is not None and _same(given, token):
            clean = request.rel_url.without_query_params("token")
            response = web.HTTPSeeOther(str(clean))
            response.set_cookie(cookie, token, httponly=True, samesite="Strict", path="/")
            raise response
        if given is not None or not _same(request.cookies.get(cookie, ""), token):
            raise web.HTTPForbidden(text="Open the address that `replay view` wrote: its token is missing or wrong.\n")
        return await handler(request)

    return check


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """What every response says, also those of errors; a signal of aiohttp."""
    response.headers.update(HEADERS)


def _is_loopback(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in LOOPBACK
    except ValueError:
        return False


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogatepass"), token.encode())
