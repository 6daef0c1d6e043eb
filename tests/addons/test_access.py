from __future__ import annotations

import base64
from pathlib import Path

import pytest

from addons.access import Access
from certs import keys


def basic(user: str) -> str:
    return "Basic " + base64.b64encode(user.encode()).decode()


@pytest.mark.parametrize(
    ("mode", "listen_hosts", "compulsory"),
    [
        ("auto", ["127.0.0.1"], False),
        ("auto", ["localhost", "::1", "127.0.0.2"], False),
        ("auto", [""], True),
        ("auto", ["0.0.0.0"], True),
        ("auto", ["::"], True),
        ("auto", ["127.0.0.1", "10.0.0.7"], True),
        ("auto", ["gpu-7"], True),
        ("required", ["127.0.0.1"], True),
        ("off", ["0.0.0.0"], False),
    ],
)
def test_when_keys_are_compulsory(tmp_path: Path, mode: str, listen_hosts: list[str], compulsory: bool) -> None:
    access = Access(tmp_path, mode, listen_hosts)
    assert access.compulsory is compulsory
    if compulsory:
        for header in (None, basic("s:")):
            with pytest.raises(PermissionError, match=r"Set HTTPS_PROXY=http://SESSION:KEY@HOST:PORT; `tap env"):
                access.check(header)
    else:
        assert access.check(None).session is None
        assert access.check(basic("s:")).session == "s"
    assert access.check(basic(f"s:{keys.session_key(tmp_path, 's')}")).session == "s"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (basic("s:wrong"), "Wrong key for session 's' in HTTPS_PROXY"),
        (basic("a b:k"), "'a b' cannot name a session"),
        ("Bearer x", "Unreadable Proxy-Authorization"),
        ("Basic ***", "Unreadable Proxy-Authorization"),
    ],
)
def test_what_is_refused_says_what_to_set(tmp_path: Path, header: str, words: str) -> None:
    with pytest.raises(PermissionError, match=words) as refused:
        Access(tmp_path, "auto", ["127.0.0.1"]).check(header)
    assert "Set HTTPS_PROXY=" in str(refused.value)


def test_a_port_of_a_sessions_own_needs_no_key(tmp_path: Path) -> None:
    access = Access(tmp_path, "required", ["127.0.0.1"], {8081: "mine"})
    assert access.check(None, 8081).session == "mine"
    with pytest.raises(PermissionError):
        access.check(None, 8080)
