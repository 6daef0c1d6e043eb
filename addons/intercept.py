"""What `mitmdump -s addons/intercept.py` loads: who is calling, is it a model call, send it to the gateway.

Knows mitmproxy's hooks, and nothing of dialects or tokens. No connection to a provider is ever opened: model
hosts are rerouted to the gateway on loopback, everything else is refused or tunnelled untouched (`addons.egress`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from pathlib import Path
from typing import NoReturn

from mitmproxy import connection, ctx, exceptions, http, tls
from mitmproxy.addonmanager import Loader
from mitmproxy.proxy import server_hooks
from mitmproxy.proxy.mode_specs import ProxyMode, RegularMode

from addons.access import Access, ProxyUser, challenge, parse_session_ports, refusal
from addons.caller import HOST_HEADER, OURS, SESSION_HEADER, TOKEN_HEADER
from addons.config import GatewayConfig
from addons.egress import Egress
from addons.errors import CallError
from addons.let_out import LetOut
from addons.model import ModelError
from addons.providers import Provider, is_provider, parse_extra, provider_hosts
from addons.replies import UnknownParser
from addons.reserve_options import ReserveOptions, parse_edits, parse_ignore, parse_sampling
from addons.service import Service, ServiceOptions
from certs.ca import ensure
from certs.files import TrustError, default_home
from replay.store import StoreError

logger = logging.getLogger(__name__)


_ENV = os.environ.get
OPTIONS: tuple[tuple[str, str | int | bool, str, tuple[str, ...] | None], ...] = (
    ("tap_engine", _ENV("HARNESSTAP_ENGINE", "http://127.0.0.1:8000"), "vLLM's address.", None),
    ("tap_model", _ENV("HARNESSTAP_MODEL", ""), "The model's files, folder or hub id; empty: what vLLM serves.", None),
    ("tap_parser", "auto", "How replies are read into reasoning, text and tool calls.", None),
    ("tap_store", _ENV("HARNESSTAP_STORE", "sqlite:///harnesstap.db"), "Database URL of the record.", None),
    ("tap_home", _ENV("HARNESSTAP_HOME", str(default_home())), "Folder of the CA and the session secret.", None),
    ("tap_keys", "auto", "Session keys; auto requires them beyond loopback.", ("auto", "required", "off")),
    ("tap_sampling", "asked", "The harness's parameters, or the full distribution.", ("asked", "full")),
    ("tap_train_constrained", False, "Train on turns sampled under a grammar too (off-policy).", None),
    ("tap_images", "placeholder", "What the model can't see: named in words, or a 400.", ("placeholder", "refuse")),
    ("tap_reasoning", "keep", "Reasoning of earlier turns: as sampled, or the template's.", ("keep", "template")),
    ("tap_max_tokens", 0, "Upper bound on sampled tokens of one turn; 0: none.", None),
    ("tap_egress", "refuse", "Other hosts: refused, tunnelled, or that and recorded.", ("refuse", "tunnel", "record")),
    ("tap_allow", "", "Let out and record these all the same: hosts, or words such as pypi, npm, github.", None),
    ("tap_session_ports", "", "Ports on loopback of one session each, as comma-separated NAME=PORT.", None),
    ("tap_providers", "", "More providers, comma-separated host=dialect pairs.", None),
    ("tap_websocket", True, "Speak Responses over WebSocket; off: upgrades are answered 426 at once.", None),
    ("tap_replay", "", "Answer from this stored session instead of vLLM.", None),
    ("tap_replay_until", 0, "The last of its turns to answer from, counted from 1; 0: all.", None),
    ("tap_replay_then", "stop", "What becomes of a call that it does not have.", ("stop", "live")),
    ("tap_replay_cadence", "fast", "The pace of its replies.", ("fast", "recorded")),
    ("tap_replay_sampling", "", "JSON object of sampling parameters for calls that go to vLLM.", None),
    ("tap_replay_ignore", "", "JSON list of regular expressions of what may differ in texts.", None),
    ("tap_replay_edits", "", "JSON list of [old, new] texts, for what is said after the last turn.", None),
    ("tap_gateway_port", 0, "Port of the gateway, also a plain base URL; 0: any free one.", None),
)
"""Name, default, what it is, and the values it may have."""


def _give_up(error: Exception) -> NoReturn:
    # No Exception, which mitmproxy would catch, log and outlive.
    raise SystemExit(f"harnesstap cannot start: {error}") from error


def _listen_hosts() -> list[str]:
    """Where mitmproxy listens, by every mode."""
    modes = map(ProxyMode.parse, ctx.options.mode)
    return [m.listen_host(ctx.options.listen_host) for m in modes if m.listen_port(ctx.options.listen_port) is not None]


def _on_loopback(mode: str) -> str:
    """A plain proxy for which nobody named an address, on loopback: mitmproxy would listen on every interface."""
    spec = ProxyMode.parse(mode)
    if not isinstance(spec, RegularMode) or spec.listen_host(ctx.options.listen_host):
        return mode
    logger.info("on loopback only; --listen-host 0.0.0.0 is for every interface, and makes session keys compulsory")
    return f"regular@127.0.0.1:{spec.listen_port(ctx.options.listen_port)}"


class Intercept:
    """The addon. One per mitmdump."""

    def __init__(self) -> None:
        self._service: Service | None = None
        self._access: Access | None = None
        self._let_out = LetOut(self._is_provider, self._session_of, self._add_traffic)
        self.addons = [self._let_out]  # mitmproxy hands each event to these, too
        self._users: dict[str, ProxyUser] = {}
        self._extra: tuple[Provider, ...] = ()
        self._reserve: ReserveOptions | None = None
        self._token = secrets.token_urlsafe(24)
        self._started = asyncio.Event()
        self._configured = False

    def load(self, loader: Loader) -> None:
        """Declare the options. A value of the user's that is none ends the process, see `configure`."""
        try:
            for name, default, says, choices in OPTIONS:
                loader.add_option(name, type(default), default, says, choices)
            # What --set gave them; mitmproxy would do it after us, and say nothing.
            loader.master.options.process_deferred()
        except exceptions.OptionsError as error:
            _give_up(error)

    def configure(self, updated: set[str]) -> None:
        """Check the options, and point mitmproxy at our CA before it makes one of its own.

        An error at start-up ends the process: mitmproxy would go on without this addon, without a word, as a proxy that
        passes everything on to the provider.
        """
        try:
            self._configure(updated)
        except exceptions.OptionsError as error:
            if self._configured:
                raise
            _give_up(error)
        self._configured = True

    def _configure(self, updated: set[str]) -> None:
        for name, _, _, choices in OPTIONS:
            if choices is not None and (value := getattr(ctx.options, name)) not in choices:
                raise exceptions.OptionsError(f"{name} {value!r}: choose one of {', '.join(choices)}")
        if updated & {"tap_providers", "tap_home"}:
            try:
                self._extra = parse_extra(ctx.options.tap_providers)
                authority = ensure(Path(ctx.options.tap_home).expanduser(), provider_hosts(self._extra))
            except (ValueError, TrustError, OSError) as error:
                raise exceptions.OptionsError(str(error)) from error
            ctx.options.update(
                confdir=str(authority.directory),
                connection_strategy="lazy",  # eager would call the provider at CONNECT
                upstream_cert=False,  # and so would a look at its certificate
                # Of no host. Where there are some, mitmproxy waits for the whole of a client's hello, as we must.
                ignore_hosts=[*{*ctx.options.ignore_hosts, "(?!)"}],
                flow_detail=0,  # the log must show no key and no prompt
            )
        if any(name.startswith("tap_replay") for name in updated):
            self._reserve = _reserve()
        if not ctx.options.tap_engine.startswith(("http://", "https://")):
            raise exceptions.OptionsError(f"tap_engine {ctx.options.tap_engine!r}: write http://HOST:PORT")
        try:
            self._let_out.egress = Egress.parse(ctx.options.tap_egress, ctx.options.tap_allow)
            ports = parse_session_ports(ctx.options.tap_session_ports)
        except ValueError as error:
            raise exceptions.OptionsError(str(error)) from error
        if updated & {"tap_keys", "tap_home", "mode", "listen_host", "tap_session_ports"}:
            home = Path(ctx.options.tap_home).expanduser()
            self._access = Access(home, ctx.options.tap_keys, _listen_hosts(), ports)

    async def running(self) -> None:
        """Start the gateway and look at vLLM. What can't work is an error now, and mitmdump stops."""
        options = ctx.options
        if unknown := sorted(name for name in options.deferred if name.startswith("tap_")):
            # Only now: other scripts may declare options of this kind.
            _give_up(
                exceptions.OptionsError(f"no option {', '.join(unknown)}; there are {', '.join(o[0] for o in OPTIONS)}")
            )
        assert self._access is not None
        # A port that a mode of the user's listens on stays that mode's: `--mode reverse:...@PORT`, say.
        listening = {ProxyMode.parse(mode).custom_listen_port for mode in options.mode}
        ports = parse_session_ports(options.tap_session_ports)
        ours = [f"regular@127.0.0.1:{port}" for port in ports if port not in listening]
        # Not in `configure`: mitmproxy has read the modes before it loads a script.
        options.update(mode=[*map(_on_loopback, options.mode), *ours])
        config = GatewayConfig(
            sampling=options.tap_sampling,
            reasoning=options.tap_reasoning,
            train_constrained=options.tap_train_constrained,
            images=options.tap_images,
            output_cap=options.tap_max_tokens or None,
            token=self._token,
            open_access=not self._access.compulsory,
            extra_providers=self._extra,
            websocket=options.tap_websocket,
        )
        self._service = Service(
            ServiceOptions(
                engine=options.tap_engine, store=options.tap_store, model=options.tap_model,
                parser=options.tap_parser, port=options.tap_gateway_port, config=config, reserve=self._reserve,
            )
        )  # fmt: skip
        try:
            await self._service.start()
            self._started.set()
        except (CallError, ModelError, UnknownParser, StoreError, OSError) as error:
            logger.error("harnesstap cannot start: %s", error)
            ctx.master.shutdown()

    async def done(self) -> None:
        """Stop the gateway; the record is flushed."""
        if self._service is not None:
            await self._service.stop()

    def client_disconnected(self, client: connection.Client) -> None:
        """Forget a connection."""
        self._users.pop(client.id, None)

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Who is calling, and may this host be reached at all?"""
        if not self._admit(flow):
            return
        host = flow.request.host.lower().rstrip(".")  # where it wants to go, whatever its Host header says
        if not self._is_provider(host) and not self._let_out.egress.lets_out(host):
            self._refuse(flow, host)

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        """The last word on every connection that would be opened, whatever led to it: raw TCP in a tunnel, say."""
        host, port = data.server.address or ("", 0)
        if self._service is not None and (host, port) == ("127.0.0.1", self._service.port):
            return
        if self._is_provider(host) or not self._let_out.egress.lets_out(host):
            data.server.error = f"harnesstap opens no connection to {host}:{port}"

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """End TLS for providers.

        A foreign name inside a tunnel to a provider is ended here as well, and fails the client's check: passed on,
        it would reach the provider.
        """
        server = data.context.server
        name = data.client_hello.sni or (server.address[0] if server.address else "")
        if self._is_provider(name):
            # The leaf names the server's address too, which may be one that our CA must not sign for.
            server.address = (name, 443)

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Send a provider's request to the gateway, streamed both ways."""
        # A tunnel was admitted once; requests to a proxy in plain HTTP each carry, and may change, their user.
        told = "proxy-authorization" in flow.request.headers
        if (told or flow.client_conn.id not in self._users) and not self._admit(flow):
            return
        user = self._users[flow.client_conn.id]
        flow.request.headers.pop("proxy-authorization", None)
        host = flow.request.pretty_host.lower().rstrip(".")
        if not self._is_provider(host):
            if flow.request.scheme == "https" or not self._let_out.egress.lets_out(host):
                self._refuse(flow, host)
            return
        for name in OURS:
            flow.request.headers.pop(name, None)
        await self._started.wait()  # clients may come before vLLM was looked at
        assert self._service is not None
        flow.request.headers[TOKEN_HEADER] = self._token
        flow.request.headers[HOST_HEADER] = host
        if user.session is not None:
            flow.request.headers[SESSION_HEADER] = user.session
        flow.request.scheme = "http"
        flow.request.host = "127.0.0.1"
        flow.request.port = self._service.port
        flow.request.stream = True

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Bytes pass as they come."""
        if flow.response is not None and not flow.response.stream:
            flow.response.stream = True

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        """Messages pass; mitmproxy would keep all of them as long as the connection lives."""
        assert flow.websocket is not None
        del flow.websocket.messages[:-1]

    def _admit(self, flow: http.HTTPFlow) -> bool:
        """Read the proxy user of a connection; a refused one gets its 407."""
        assert self._access is not None
        try:
            # The listener's: where a transparent one was connected to is where the client meant to go.
            port = flow.client_conn.proxy_mode.listen_port(ctx.options.listen_port)
            user = self._access.check(flow.request.headers.get("proxy-authorization"), port)
        except PermissionError as error:
            logger.warning("407 to %s: %s", flow.client_conn.peername[0], error)  # few clients show the body
            flow.response = challenge(str(error))
            return False
        self._users[flow.client_conn.id] = user
        return True

    def _session_of(self, client: connection.Client) -> str | None:
        user = self._users.get(client.id)
        return None if user is None else user.session

    def _add_traffic(self, session: str, host: str, sent: int, received: int) -> None:
        if self._service is not None:
            self._service.add_traffic(session, host, sent=sent, received=received)

    def _refuse(self, flow: http.HTTPFlow, host: str) -> None:
        logger.warning("403 for %s: no provider, and not let out (`tap up --allow %s` does)", host, host)
        flow.response = refusal(host)

    def _is_provider(self, host: str) -> bool:
        return is_provider(host, self._extra)


def _reserve() -> ReserveOptions | None:
    """What to answer from, by the options; raises OptionsError."""
    options = ctx.options
    if not options.tap_replay:
        return None
    try:
        return ReserveOptions(
            session=options.tap_replay, until=options.tap_replay_until, then=options.tap_replay_then,
            cadence=options.tap_replay_cadence, sampling=parse_sampling(options.tap_replay_sampling),
            edits=parse_edits(options.tap_replay_edits), ignore=parse_ignore(options.tap_replay_ignore),
        )  # fmt: skip
    except ValueError as error:
        raise exceptions.OptionsError(str(error)) from error


addons = [Intercept()]
