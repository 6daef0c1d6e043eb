from __future__ import annotations

import hashlib
import hmac
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs import keys
from certs.environment import proxy_url
from certs.files import TrustError
from tests.certs.racing import race

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-"


def test_key_is_what_it_says(tmp_path: Path) -> None:
    key = keys.session_key(tmp_path, "try-1")
    secret = (tmp_path / "certs" / "session-secret").read_bytes()
    assert key == hmac.new(secret, b"try-1", hashlib.sha256).hexdigest()[:32]
    assert keys.session_key(tmp_path, "try-1") == key
    assert keys.session_key(tmp_path, "try-2") != key
    assert stat.S_IMODE((tmp_path / "certs" / "session-secret").stat().st_mode) == 0o600


def test_check(tmp_path: Path) -> None:
    key = keys.session_key(tmp_path, "try-1")
    assert keys.check(tmp_path, "try-1", key)
    for name, wrong in [("try-2", key), ("try-1", ""), ("try-1", key[:-1]), ("try-1", key.upper()), ("try-1", "ü")]:
        assert not keys.check(tmp_path, name, wrong)
    assert not keys.check(tmp_path, "no/name", key)


def test_key_of_another_installation(tmp_path: Path) -> None:
    assert not keys.check(tmp_path / "a", "try-1", keys.session_key(tmp_path / "b", "try-1"))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "a%40b", "ü", "a\n", "a" * 201])
def test_names_that_do_not_survive_a_url(tmp_path: Path, name: str) -> None:
    assert not keys.is_session_name(name)
    with pytest.raises(ValueError, match="cannot name a session"):
        keys.session_key(tmp_path, name)


@given(st.text(ALPHABET, min_size=1, max_size=200))
def test_names_survive_a_url(name: str) -> None:
    assert keys.is_session_name(name)
    parts = urlsplit(proxy_url("127.0.0.1", 8080, name, "0f" * 16))
    assert (parts.hostname, parts.port, parts.password) == ("127.0.0.1", 8080, "0f" * 16)
    assert parts.username is not None
    assert parts.username.replace("%40", "@") == name


def test_damaged_secret_is_never_replaced(tmp_path: Path) -> None:
    keys.ensure_secret(tmp_path)
    path = tmp_path / "certs" / "session-secret"
    path.write_bytes(b"short")
    with pytest.raises(TrustError, match="5 bytes"):
        keys.session_key(tmp_path, "try-1")
    assert path.read_bytes() == b"short"


def test_processes_at_once_share_one_secret(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from certs import keys; go()\n"
        "for n in range(20): print(keys.session_key(Path(sys.argv[1]) / str(n), 's'))"
    )
    outputs = race(script, *[[str(tmp_path)]] * 4)
    assert outputs == ["".join(f"{keys.session_key(tmp_path / str(n), 's')}\n" for n in range(20))] * 4


def test_key_hash() -> None:
    assert keys.key_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
