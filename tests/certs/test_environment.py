from __future__ import annotations

from pathlib import Path

import pytest

from certs.environment import DUMMY_KEY, dummy_keys, harness_environment, proxy_url


def test_every_variable() -> None:
    proxy, bundle = "http://try-1:0f0f@127.0.0.1:8080", Path("/home/me/.harnesstap/certs/bundle.pem")
    assert harness_environment(proxy, bundle) == {
        **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), proxy),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
        **dict.fromkeys(("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), str(bundle)),
        **dict.fromkeys(("GIT_SSL_CAINFO", "CODEX_CA_CERTIFICATE", "DENO_CERT", "NIX_SSL_CERT_FILE"), str(bundle)),
        "NODE_USE_ENV_PROXY": "1",
    }  # fmt: skip


def test_bundle_is_named_for_any_working_directory() -> None:
    assert harness_environment("http://p:1", Path("bundle.pem"))["SSL_CERT_FILE"] == str(Path.cwd() / "bundle.pem")


@pytest.mark.parametrize(
    ("host", "session", "key", "expected"),
    [
        ("127.0.0.1", None, None, "http://127.0.0.1:8080"),
        ("127.0.0.1", "try-1", "0f", "http://try-1:0f@127.0.0.1:8080"),
        ("gpu-7", "me@try", "0f", "http://me%40try:0f@gpu-7:8080"),
        ("::1", "try-1", "0f", "http://try-1:0f@[::1]:8080"),
    ],
)
def test_proxy_url(host: str, session: str | None, key: str | None, expected: str) -> None:
    assert proxy_url(host, 8080, session, key) == expected


def test_half_a_credential() -> None:
    with pytest.raises(ValueError, match="both session and key"):
        proxy_url("127.0.0.1", 8080, "try-1")


def test_dummy_keys_fill_only_what_is_missing() -> None:
    environ = {"OPENAI_API_KEY": "sk-real", "GEMINI_API_KEY": ""}
    names = ["OPENAI_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_API_KEY"]
    assert dummy_keys(names, environ) == {"GEMINI_API_KEY": DUMMY_KEY, "ANTHROPIC_API_KEY": DUMMY_KEY}
    with pytest.raises(ValueError, match="OPENAI=1"):
        dummy_keys(["OPENAI=1"], environ)
