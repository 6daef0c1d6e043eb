from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.provider_table import OPERATIONS, PROVIDERS, Inert
from addons.providers import classify, is_provider, parse_extra, provider_hosts
from certs.ca import permitted_names

GOOGLE, VERTEX_US, VERTEX_EU = (
    "generativelanguage.googleapis.com",
    "us-east5-aiplatform.googleapis.com",
    "europe-west4-aiplatform.googleapis.com",
)
VERTEX = "/v1/projects/p-1/locations/us-central1"
CLAUDE = f"{VERTEX}/publishers/anthropic/models"


@pytest.mark.parametrize(
    ("host", "path", "provider", "dialect"),
    [
        ("api.openai.com", "/v1/chat/completions", "openai", "chat"),
        ("api.openai.com", "/v1/responses", "openai", "responses"),
        ("eu.api.openai.com", "/v1/responses", "openai", "responses"),
        ("chatgpt.com", "/backend-api/codex/responses", "chatgpt", "responses"),
        ("api.anthropic.com", "/v1/messages?beta=true", "anthropic", "messages"),
        ("api.anthropic.com", "/v1/chat/completions", "anthropic", "chat"),
        ("openrouter.ai", "/api/v1/chat/completions", "openrouter", "chat"),
        ("openrouter.ai", "/api/v1/responses", "openrouter", "responses"),
        ("openrouter.ai", "/api/v1/messages", "openrouter", "messages"),
        ("generativelanguage.googleapis.com", "/v1beta/openai/chat/completions", "google", "chat"),
        ("api.mistral.ai", "/v1/chat/completions", "mistral", "chat"),
        ("dashscope.aliyuncs.com", "/compatible-mode/v1/chat/completions", "dashscope", "chat"),
        ("dashscope-intl.aliyuncs.com", "/compatible-mode/v1/chat/completions", "dashscope", "chat"),
        ("dashscope.aliyuncs.com", "/apps/anthropic/v1/messages", "dashscope", "messages"),
        ("coding.dashscope.aliyuncs.com", "/v1/chat/completions", "qwen", "chat"),
        ("api.moonshot.ai", "/v1/chat/completions", "moonshot", "chat"),
        ("api.moonshot.ai", "/anthropic/v1/messages", "moonshot", "messages"),
        ("api.kimi.com", "/coding/v1/chat/completions", "kimi", "chat"),
        ("api.x.ai", "/v1/responses", "xai", "responses"),
        ("api.deepseek.com", "/chat/completions", "deepseek", "chat"),
        ("api.deepseek.com", "/v1/chat/completions", "deepseek", "chat"),
        ("api.deepseek.com", "/anthropic/v1/messages?beta=true", "deepseek", "messages"),
        ("api.groq.com", "/openai/v1/chat/completions", "groq", "chat"),
        ("api.z.ai", "/api/coding/paas/v4/chat/completions", "zai", "chat"),
        ("myteam.openai.azure.com", "/openai/v1/responses?api-version=preview", "azure", "responses"),
        ("myteam.openai.azure.com", "/openai/responses?api-version=2025-04-01-preview", "azure", "responses"),
        ("myteam.services.ai.azure.com", "/anthropic/v1/messages", "azure", "messages"),
        ("us-central1-aiplatform.googleapis.com", f"{VERTEX}/endpoints/openapi/chat/completions", "vertex", "chat"),
    ],
)
def test_model_calls(host: str, path: str, provider: str, dialect: str) -> None:
    route = classify("POST", host, path)
    assert (route.kind, route.provider, route.dialect, route.model) == ("model", provider, dialect, None)
    assert route.path == path.partition("?")[0]


@pytest.mark.parametrize(
    ("host", "path", "dialect", "model", "stream"),
    [
        (GOOGLE, "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", "gemini", "gemini-3-pro", True),
        (GOOGLE, "/v1beta/models/gemini-3-pro:generateContent", "gemini", "gemini-3-pro", False),
        (GOOGLE, "/v1alpha/models/a%2Fb%3Ac:generateContent", "gemini", "a/b:c", False),
        ("aiplatform.googleapis.com", "/v1/publishers/google/models/g:generateContent", "gemini", "g", False),
        (VERTEX_EU, f"{VERTEX}/publishers/google/models/g:streamGenerateContent", "gemini", "g", True),
        (VERTEX_US, f"{CLAUDE}/claude-5@20251101:streamRawPredict", "messages", "claude-5@20251101", True),
        (VERTEX_US, f"{CLAUDE}/claude-5:rawPredict", "messages", "claude-5", False),
        ("t.openai.azure.com", "/openai/deployments/gpt-5/chat/completions?api-version=1", "chat", "gpt-5", None),
    ],
)
def test_model_named_by_the_path(host: str, path: str, dialect: str, model: str, stream: bool | None) -> None:
    route = classify("POST", host, path)
    assert (route.kind, route.dialect, route.model, route.stream) == ("model", dialect, model, stream)


def test_websocket_upgrade_is_a_model_call() -> None:
    for host, path in [("api.openai.com", "/v1/responses"), ("chatgpt.com", "/backend-api/codex/responses")]:
        route = classify("GET", host, path)
        assert (route.kind, route.dialect, route.stream) == ("model", "responses", True)


@pytest.mark.parametrize(
    ("method", "host", "path", "dialect"),
    [
        ("POST", "api.anthropic.com", "/v1/messages/count_tokens?beta=true", "messages"),
        ("POST", "generativelanguage.googleapis.com", "/v1beta/models/g:countTokens", "gemini"),
        ("POST", "api.openai.com", "/v1/responses/input_tokens", "responses"),
        ("POST", VERTEX_US, f"{CLAUDE}/count-tokens:rawPredict", "messages"),
    ],
)
def test_token_counts(method: str, host: str, path: str, dialect: str) -> None:
    route = classify(method, host, path)
    assert (route.kind, route.dialect) == ("count", dialect)


@pytest.mark.parametrize(
    ("host", "path", "dialect", "model"),
    [
        ("api.openai.com", "/v1/models", "chat", None),
        ("api.openai.com", "/v1/models/gpt-5.2", "chat", "gpt-5.2"),
        ("api.anthropic.com", "/v1/models?limit=1000", "messages", None),
        ("generativelanguage.googleapis.com", "/v1beta/models", "gemini", None),
        ("openrouter.ai", "/api/v1/models", "chat", None),
        ("openrouter.ai", "/api/v1/models/qwen/qwen3-coder", "chat", "qwen/qwen3-coder"),
        ("chatgpt.com", "/backend-api/codex/models?client_version=0.171.0", "responses", None),
    ],
)
def test_model_listings(host: str, path: str, dialect: str, model: str | None) -> None:
    route = classify("GET", host, path)
    assert (route.kind, route.dialect, route.model) == ("models", dialect, model)


@pytest.mark.parametrize(
    ("method", "host", "path", "dialect"),
    [
        ("POST", "api.openai.com", "/v1/embeddings", "chat"),
        ("POST", "api.openai.com", "/v1/completions", "chat"),
        ("DELETE", "api.openai.com", "/v1/responses/resp_1", "chat"),
        ("POST", "api.openai.com", "/v1/responses/resp_1/cancel", "chat"),
        ("GET", "api.openai.com", "/v1/chat/completions", "chat"),
        ("POST", "api.openai.com", "/v1/threads/thread_1/messages", "chat"),
        ("POST", "api.anthropic.com", "/v1/messages/batches", "messages"),
        ("GET", "api.anthropic.com", "/v1/messages", "messages"),
        ("POST", "generativelanguage.googleapis.com", "/v1beta/models/g:embedContent", "gemini"),
        ("POST", "api.mistral.ai", "/v1/fim/completions", "chat"),
        ("POST", "chatgpt.com", "/backend-api/codex/safety", "responses"),
    ],
)
def test_what_we_do_not_serve_is_refused(method: str, host: str, path: str, dialect: str) -> None:
    route = classify(method, host, path)
    assert (route.kind, route.dialect, route.inert) == ("refused", dialect, None)


@pytest.mark.parametrize(
    ("method", "host", "path", "inert"),
    [
        ("HEAD", "api.anthropic.com", "/", Inert(200)),
        ("GET", "api.anthropic.com", "/api/hello", Inert(200, '{"message":"hello"}')),
        ("POST", "api.anthropic.com", "/api/event_logging/batch", Inert(200)),
        ("GET", "api.anthropic.com", "/api/claude_cli/bootstrap", Inert(404)),
        ("GET", "chatgpt.com", "/backend-api/wham/usage", Inert(404)),
        ("POST", "ab.chatgpt.com", "/otlp/v1/metrics", Inert(200)),
        ("POST", "play.googleapis.com", "/log?format=json", Inert(200)),
        ("GET", "models.dev", "/api.json", Inert(404)),
        ("POST", "abc123-default-cn.rum.aliyuncs.com", "/", Inert(200)),
        ("POST", "telemetry.mistral.ai", "/v1/events", Inert(200)),
        ("GET", "api.deepseek.com", "/user/balance", Inert(404)),
    ],
)
def test_housekeeping_is_answered_inertly(method: str, host: str, path: str, inert: Inert) -> None:
    route = classify(method, host, path)
    assert (route.kind, route.dialect, route.inert) == ("housekeeping", None, inert)


FOREIGN = """
    github.com raw.githubusercontent.com example.com openai.com api.openai.com.example.com xapi.openai.com
    googleapis.com storage.googleapis.com evil-aiplatform.googleapis.com openai.azure.com 127.0.0.1 [::1]
"""


@pytest.mark.parametrize("host", ["", *FOREIGN.split()])
def test_foreign_hosts(host: str) -> None:
    assert classify("POST", host, "/v1/chat/completions").kind == "foreign"
    assert not is_provider(host)


@pytest.mark.parametrize("host", ["API.OpenAI.com", "api.openai.com.", "api.openai.com:443"])
@pytest.mark.parametrize("tail", ["", "/", "?x=/v1/responses", "#x"])
def test_spelling_does_not_matter(host: str, tail: str) -> None:
    route = classify("post", host, f"//v1/chat//completions{tail}")
    assert (route.kind, route.provider, route.dialect, route.path) == (
        "model",
        "openai",
        "chat",
        "/v1/chat/completions",
    )


def test_the_authority_is_good_for_exactly_what_is_intercepted() -> None:
    hosts = provider_hosts(parse_extra("llm.example.com=chat *.models.example.org=chat"))
    assert hosts == list(permitted_names(hosts))
    for provider in PROVIDERS:
        for host in provider.hosts:
            concrete = host.replace("*", "any")
            assert is_provider(concrete)
            assert any(concrete == name or concrete.endswith(f".{name}") for name in hosts), host
    assert {"llm.example.com", "models.example.org", "api.openai.com"} <= set(hosts)
    assert not {"com", "googleapis.com", "github.com", "aliyuncs.com", "azure.com"} & set(hosts)


def test_no_host_is_in_two_rows() -> None:
    hosts = [host for provider in PROVIDERS for host in provider.hosts]
    assert len(hosts) == len(set(hosts))


def test_every_operation_of_every_row_is_reached() -> None:
    """No mount or operation is dead: an example of each is classified as what the table says."""
    for provider in PROVIDERS:
        for mount in provider.mounts:
            for style in mount.styles:
                for operation in OPERATIONS[style]:
                    path = (mount.base or "") + operation.path
                    for name in ("model", "deployment", "version", "project", "location"):
                        path = path.replace(f"{{{name}}}", f"some-{name}")
                    route = classify(operation.method, provider.hosts[0].replace("*", "any"), path)
                    assert (route.kind, route.provider) == (operation.kind, provider.name), path
                    if operation.kind != "models":  # two dialects of one mount share the list; the first wins
                        assert (route.dialect, route.stream) == (operation.dialect, operation.stream), path


@given(st.text(), st.text(), st.text())
def test_any_request_has_a_route(method: str, host: str, path: str) -> None:
    assert classify(method, host, path).kind == ("housekeeping" if is_provider(host) else "foreign")
    route = classify(method, "api.openai.com", path)
    assert route.path.startswith("/")
    assert (route.inert is not None) == (route.kind == "housekeeping")
    assert (route.dialect is None) == (route.kind == "housekeeping")


def test_extra_provider_anywhere_under_its_host() -> None:
    extra = parse_extra("LLM.example.com=chat+messages")
    for path, dialect in [
        ("/v1/chat/completions", "chat"),
        ("/a/b/chat/completions", "chat"),
        ("/messages", "messages"),
    ]:
        route = classify("POST", "llm.example.com", path, extra)
        assert (route.kind, route.provider, route.dialect) == ("model", "llm.example.com", dialect)
    assert classify("GET", "llm.example.com", "/v1/models", extra).kind == "models"
    refused = classify("POST", "llm.example.com", "/v1/responses", extra)
    assert (refused.kind, refused.dialect) == ("refused", "chat")
    assert classify("POST", "llm.example.com", "/v1/chat/completions").kind == "foreign"


def test_extra_provider_with_a_base_and_a_wildcard() -> None:
    extra = parse_extra("*.example.com/api/v1=chat, llm.example.com/x/=responses,llm.example.com/y=gemini")
    assert classify("POST", "a.b.example.com", "/api/v1/chat/completions", extra).dialect == "chat"
    assert classify("POST", "a.example.com", "/v2/chat/completions", extra).kind == "housekeeping"
    assert classify("POST", "example.com", "/api/v1/chat/completions", extra).kind == "foreign"
    assert classify("POST", "llm.example.com", "/x/responses", extra).dialect == "responses"
    assert classify("POST", "llm.example.com", "/y/models/m:generateContent", extra).model == "m"


def test_extra_provider_goes_before_ours() -> None:
    extra = parse_extra("api.openai.com=messages")
    assert classify("POST", "api.openai.com", "/v1/messages", extra).dialect == "messages"
    assert classify("POST", "api.openai.com", "/v1/chat/completions", extra).kind == "refused"


def test_no_extra_provider() -> None:
    assert parse_extra("") == parse_extra(" , ") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llm.example.com", "write HOST=DIALECT"),
        ("llm.example.com=", "write HOST=DIALECT"),
        ("llm.example.com=chats", "dialects: chat, responses, messages, gemini"),
        ("llm.example.com=chat+", "write HOST=DIALECT"),
        ("=chat", "not a DNS name"),
        ("10.0.0.5=chat", "'10.0.0.5' is not a DNS name"),
        ("localhost=chat", "not a DNS name"),
        ("https://llm.example.com=chat", "not a DNS name"),
        ("api.x.ai=chat,*=chat", r"provider '\*=chat'"),
    ],
)
def test_extra_provider_that_is_not_understood(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_extra(text)
