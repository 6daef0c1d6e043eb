"""What can be set, in one place: the interceptor turns mitmproxy options into this, tests make it by hand."""

from __future__ import annotations

from dataclasses import dataclass

from addons import media
from addons.prompts import ReasoningPolicy
from addons.providers import Provider
from addons.sampling import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Settings of the gateway. Times are seconds, sizes bytes."""

    sampling: Policy = "asked"
    train_constrained: bool = False
    """Turns sampled under a grammar (forced calls, output formats) may be trained on, though their logprobs are those
    of the constrained distribution."""
    images: media.Policy = "placeholder"
    """What becomes of images and documents that the model cannot see."""
    reasoning: ReasoningPolicy = "keep"
    """Whether earlier turns keep their reasoning as it was sampled, or lose it where the chat template does."""
    output_cap: int | None = None
    """Upper bound on sampled tokens of one turn, whatever the harness asks."""
    keepalive: float = 5.0
    """Silence after which a streaming harness gets its provider's keep-alive."""
    body_limit: int = 64 << 20
    websocket: bool = True
    """Speak Responses over WebSocket; otherwise an upgrade is answered 426 at once, and harnesses use POST."""
    token: str = ""
    """Shared with the interceptor; empty lets nobody claim a session by header."""
    open_access: bool = True
    """Serve callers that come without the token (a plain base URL)."""
    extra_providers: tuple[Provider, ...] = ()
    """The user's own rows of the providers table."""
