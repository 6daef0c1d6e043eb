"""What went over the wire, one JSON line a request: `mitmdump -s addons/intercept.py -s addons/matrix/flowlog.py`.

Names of hosts, paths without their query, methods and outcomes only: no header, no body, no key.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader

from addons.caller import HOST_HEADER, SESSION_HEADER
from addons.providers import classify


class FlowLog:
    """The addon. It must be loaded after the interceptor, whose decisions it notes."""

    def __init__(self) -> None:
        self._messages: Counter[str] = Counter()

    def load(self, loader: Loader) -> None:
        """Declare the option."""
        loader.add_option("matrix_flow_log", str, "", "File to which a JSON line for each request is added.")

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """A tunnel that was refused: nothing else will be heard of it."""
        if flow.response is not None:
            session = _user(flow.request.headers.get("proxy-authorization", ""))
            self._write(flow, session, flow.request.host, kind="no tunnel")

    def response(self, flow: http.HTTPFlow) -> None:
        """A request that was answered."""
        if flow.websocket is None:
            self._request(flow)

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        """Each message of a harness is a call."""
        assert flow.websocket is not None
        if flow.websocket.messages[-1].from_client:
            self._messages[flow.id] += 1

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        """A WebSocket that was closed."""
        self._request(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        """A request whose connection broke."""
        self._request(flow)

    def _request(self, flow: http.HTTPFlow) -> None:
        host = flow.request.headers.get(HOST_HEADER, flow.request.pretty_host)
        kind = classify(flow.request.method, host, flow.request.path).kind
        self._write(flow, flow.request.headers.get(SESSION_HEADER), host, kind=kind)

    def _write(self, flow: http.HTTPFlow, session: str | None, host: str, *, kind: str) -> None:
        response = flow.response
        line: dict[str, Any] = {
            "at": time.time(),
            "session": session,
            "kind": kind,
            "method": flow.request.method,
            "host": host,
            "path": flow.request.path.partition("?")[0],
            "status": None if response is None else response.status_code,
            "http": flow.request.http_version,
            "websocket": flow.websocket is not None,
            "calls": 1 if flow.websocket is None else self._messages.pop(flow.id, 0),
            "streamed": response is not None and _streams(response),
            "error": None if flow.error is None else flow.error.msg,
        }
        with Path(ctx.options.matrix_flow_log).open("a") as log:
            log.write(json.dumps(line) + "\n")


def _streams(response: http.Response) -> bool:
    """A model's reply that comes as it is sampled has no length; one in JSON that does is whole."""
    kind = response.headers.get("content-type", "")
    return kind.startswith("text/event-stream") or "content-length" not in response.headers


def _user(header: str) -> str | None:
    """The session of a Basic proxy user."""
    try:
        name, _, _ = base64.b64decode(header.partition(" ")[2], validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return unquote(name) or None


addons = [FlowLog()]
