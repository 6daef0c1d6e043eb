"""The table of providers: which hosts are a model's, and what each path there asks for.

A provider is one row: its name, its hosts, and where under them each dialect is mounted. What a dialect does
below its mount is a table too. Everything follows from the two (see `providers`): how a request is answered, which
hosts are intercepted, and which hosts our certificate authority may sign for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["chat", "responses", "messages", "gemini"]
Style = Literal["chat", "responses", "messages", "gemini", "vertex_messages"]
Kind = Literal["model", "compact", "stored", "models", "count", "housekeeping", "refused", "foreign"]


@dataclass(frozen=True, slots=True)
class Inert:
    """A harmless local answer: HTTP status and JSON text."""

    status: int
    body: str = "{}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One request of a dialect: method and path below the mount; `{model}` stands for a model's name."""

    method: str
    path: str
    kind: Kind
    dialect: Dialect
    stream: bool | None = None


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a provider serves which dialects. `base` may hold `{name}` for a segment; None is any."""

    base: str | None
    styles: tuple[Style, ...]


@dataclass(frozen=True, slots=True)
class Provider:
    """One row. A host is a DNS name, or `*.` and a domain for everything below it."""

    name: str
    hosts: tuple[str, ...]
    mounts: tuple[Mount, ...]


def _listing(dialect: Dialect) -> tuple[Operation, Operation]:
    return (
        Operation("GET", "/models", "models", dialect),
        Operation("GET", "/models/{model}", "models", dialect),
    )


OPERATIONS: dict[Style, tuple[Operation, ...]] = {
    "chat": (
        Operation("POST", "/chat/completions", "model", "chat"),
        *_listing("chat"),
    ),
    "responses": (
        Operation("POST", "/responses", "model", "responses"),
        Operation("GET", "/responses", "model", "responses", stream=True),  # the upgrade to a WebSocket
        Operation("POST", "/responses/input_tokens", "count", "responses"),
        Operation("POST", "/responses/compact", "compact", "responses", stream=False),
        Operation("GET", "/responses/{reply}", "stored", "responses"),
        *_listing("responses"),
    ),
    "messages": (
        Operation("POST", "/messages", "model", "messages"),
        Operation("POST", "/messages/count_tokens", "count", "messages"),
        *_listing("messages"),
    ),
    "gemini": (
        Operation("POST", "/models/{model}:generateContent", "model", "gemini", stream=False),
        Operation("POST", "/models/{model}:streamGenerateContent", "model", "gemini", stream=True),
        Operation("POST", "/models/{model}:countTokens", "count", "gemini"),
        *_listing("gemini"),
    ),
    "vertex_messages": (
        Operation("POST", "/models/count-tokens:rawPredict", "count", "messages"),
        Operation("POST", "/models/{model}:rawPredict", "model", "messages", stream=False),
        Operation("POST", "/models/{model}:streamRawPredict", "model", "messages", stream=True),
    ),
}


def _row(name: str, hosts: str, *mounts: str) -> Provider:
    """A row from text: hosts separated by blanks, each mount as `base style style ...`."""
    parsed = (mount.partition(" ") for mount in mounts)
    return Provider(name, tuple(hosts.split()), tuple(Mount(base, styles_of(rest.split())) for base, _, rest in parsed))


def styles_of(names: Iterable[str]) -> tuple[Style, ...]:
    """Styles by their names; KeyError names one that does not exist."""
    known = {str(style): style for style in OPERATIONS}
    return tuple(known[name] for name in names)


# A name constraint cannot say "*-aiplatform.googleapis.com", and "googleapis.com" would be far too much.
_VERTEX_REGIONS = (
    "africa-south1", "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3",
    "asia-south1", "asia-south2", "asia-southeast1", "asia-southeast2", "australia-southeast1",
    "australia-southeast2", "europe-central2", "europe-north1", "europe-southwest1", "europe-west1",
    "europe-west2", "europe-west3", "europe-west4", "europe-west6", "europe-west8", "europe-west9",
    "europe-west12", "me-central1", "me-central2", "me-west1", "northamerica-northeast1",
    "northamerica-northeast2", "southamerica-east1", "southamerica-west1", "us-central1", "us-east1",
    "us-east4", "us-east5", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4",
)  # fmt: skip
_VERTEX_HOSTS = " ".join(f"{place}aiplatform.googleapis.com" for place in ("", *(f"{r}-" for r in _VERTEX_REGIONS)))
_VERTEX = "/{version}/projects/{project}/locations/{location}"

PROVIDERS: tuple[Provider, ...] = (
    _row("openai", "api.openai.com *.api.openai.com", "/v1 chat responses"),
    _row("chatgpt", "chatgpt.com", "/backend-api/codex responses"),
    _row("anthropic", "api.anthropic.com", "/v1 messages chat"),
    _row(
        "google", "generativelanguage.googleapis.com",
        "/v1beta/openai chat", "/v1beta gemini", "/v1 gemini", "/v1alpha gemini",
    ),
    _row(
        "vertex", _VERTEX_HOSTS,
        f"{_VERTEX}/publishers/google gemini", f"{_VERTEX}/publishers/anthropic vertex_messages",
        f"{_VERTEX}/endpoints/openapi chat", "/{version}/publishers/google gemini",
    ),
    _row(
        "azure", "*.openai.azure.com *.services.ai.azure.com *.cognitiveservices.azure.com",
        "/openai/deployments/{deployment} chat", "/openai/v1 chat responses", "/openai responses",
        "/anthropic/v1 messages", "/models chat",
    ),
    _row("openrouter", "openrouter.ai", "/api/v1 chat responses messages"),
    _row("mistral", "api.mistral.ai codestral.mistral.ai", "/v1 chat"),
    _row(
        "dashscope", "dashscope.aliyuncs.com dashscope-intl.aliyuncs.com dashscope-us.aliyuncs.com",
        "/compatible-mode/v1 chat responses", "/api/v2/apps/protocols/compatible-mode/v1 responses",
        "/apps/anthropic/v1 messages",
    ),
    _row(
        "qwen", "coding.dashscope.aliyuncs.com coding-intl.dashscope.aliyuncs.com portal.qwen.ai",
        "/v1 chat", "/apps/anthropic/v1 messages",
    ),
    _row("moonshot", "api.moonshot.ai api.moonshot.cn", "/v1 chat", "/anthropic/v1 messages"),
    _row("kimi", "api.kimi.com", "/coding/v1 chat messages"),
    _row("xai", "api.x.ai", "/v1 chat responses messages"),
    _row("deepseek", "api.deepseek.com", "/v1 chat", "/beta chat", "/anthropic/v1 messages", " chat"),
    _row("groq", "api.groq.com", "/openai/v1 chat responses"),
    _row(
        "zai", "api.z.ai open.bigmodel.cn",
        "/api/paas/v4 chat", "/api/coding/paas/v4 chat", "/api/anthropic/v1 messages",
    ),
    _row("minimax", "api.minimax.io api.minimaxi.com", "/v1 chat", "/anthropic/v1 messages"),
    _row("together", "api.together.xyz api.together.ai", "/v1 chat"),
    _row("fireworks", "api.fireworks.ai", "/inference/v1 chat responses messages"),
    _row("cerebras", "api.cerebras.ai", "/v1 chat"),
    _row("huggingface", "router.huggingface.co", "/v1 chat responses"),
    _row("nvidia", "integrate.api.nvidia.com", "/v1 chat"),
    _row("nous", "inference-api.nousresearch.com", "/v1 chat"),
    _row("opencode", "opencode.ai", "/zen/v1 chat responses messages"),
    _row("vercel", "ai-gateway.vercel.sh", "/v1 chat responses messages"),
    # Homes of harnesses that serve no model: answered here, since several wait, retry or hang when they
    # cannot reach them. Hosts that matter to others as well (github.com, package registries) are not ours
    # to speak for.
    _row(
        "housekeeping",
        "models.dev models.opencode.ai ab.chatgpt.com play.googleapis.com data.cline.bot otel.cline.bot "
        "code.kimi.com statsig.anthropic.com *.mistral.ai *.rum.aliyuncs.com",
    ),
)  # fmt: skip

HOUSEKEEPING: dict[tuple[str, str, str], Inert] = {
    ("HEAD", "api.anthropic.com", "/"): Inert(200),
    ("GET", "api.anthropic.com", "/api/hello"): Inert(200, '{"message":"hello"}'),
}
"""Answers that have a shape. All others: what is sent is taken, what is asked for is not there. That goes for the
catalogues of models.dev and models.opencode.ai too: by an empty one opencode and Kilo have no model, by none their own.
"""
