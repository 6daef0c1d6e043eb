"""Connections to hosts that are let out: untouched, and counted where that is asked for.

A child of the interceptor, which decides who is admitted and says what becomes of everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from mitmproxy import connection, http, tcp
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import layer, layers
from mitmproxy.proxy.layers.tls import parse_client_hello
from mitmproxy.proxy.mode_specs import RegularMode

from addons.egress import Egress, Traffic

logger = logging.getLogger(__name__)


class LetOut:
    """The addon.

    Args:
        is_provider: whether a host is ours to answer, and so never let out.
        session_of: the session of a client's connection.
        tell: called with session, host, bytes sent and received, once a counted connection is over.
    """

    def __init__(
        self,
        is_provider: Callable[[str], bool],
        session_of: Callable[[connection.Client], str | None],
        tell: Callable[[str, str, int, int], None],
    ) -> None:
        self.egress = Egress()
        self._is_provider = is_provider
        self._session_of = session_of
        self._tell = tell
        self._traffic: dict[str, Traffic] = {}

    def next_layer(self, nextlayer: layer.NextLayer) -> None:
        """Let TLS to a host that is let out pass untouched; of one that is recorded, mitmproxy tells us the bytes."""
        server, data = nextlayer.context.server, bytes(nextlayer.data_client())  # type: ignore[no-untyped-call]  # mitmproxy's
        if server.address is None or nextlayer.context.client.tls_established or not starts_like_tls_record(data):
            return
        try:
            hello = parse_client_hello(data)
        except ValueError:
            return  # no TLS, or broken: mitmproxy's own layer says so
        if hello is None:
            return  # more of it is to come, for which mitmproxy waits: see `Intercept.configure`
        if not isinstance(nextlayer.context.client.proxy_mode, RegularMode) and hello.sni:
            server.address = (hello.sni, 443)  # nobody has said where it goes but the client's TLS
        asked = server.address[0]
        if any(map(self._is_provider, (asked, hello.sni or ""))) or not self.egress.lets_out(asked):
            return
        nextlayer.layer = layers.TCPLayer(nextlayer.context, ignore=not self.egress.records(asked))

    def tcp_start(self, flow: tcp.TCPFlow) -> None:
        """A tunnel that is counted."""
        host = flow.server_conn.address[0] if flow.server_conn.address else ""
        if self.egress.records(host):
            self._traffic[flow.id] = Traffic(self._session_of(flow.client_conn), host)

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Bytes pass; only their number is kept."""
        message = flow.messages[-1]
        if (traffic := self._traffic.get(flow.id)) is not None:
            (traffic.sending if message.from_client else traffic.receiving)(message.content)
        del flow.messages[:-1]

    def tcp_end(self, flow: tcp.TCPFlow) -> None:
        """A tunnel was closed."""
        self._count(flow.id)

    def tcp_error(self, flow: tcp.TCPFlow) -> None:
        """A tunnel broke."""
        self._count(flow.id)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """A request in plain HTTP that is counted.

        The interceptor comes first: one that may not leave has its answer, one that is ours is streamed already.
        """
        host = flow.request.host.lower().rstrip(".")
        if flow.response is None and not flow.request.stream and self.egress.records(host):
            traffic = self._traffic[flow.id] = Traffic(self._session_of(flow.client_conn), host)
            flow.request.stream = traffic.sending

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Bytes pass, and are counted."""
        if flow.response is not None and (traffic := self._traffic.get(flow.id)) is not None:
            flow.response.stream = traffic.receiving

    def response(self, flow: http.HTTPFlow) -> None:
        """A request was answered."""
        self._count(flow.id)

    def error(self, flow: http.HTTPFlow) -> None:
        """A request broke off."""
        self._count(flow.id)

    def _count(self, flow_id: str) -> None:
        if (traffic := self._traffic.pop(flow_id, None)) is None:
            return
        who = traffic.session or "a caller without a session"
        logger.info("%s let out to %s: %d bytes sent, %d received", who, traffic.host, traffic.sent, traffic.received)
        if traffic.session is not None:
            self._tell(traffic.session, traffic.host, traffic.sent, traffic.received)
