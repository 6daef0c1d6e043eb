from __future__ import annotations

import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest

from certs import roots
from certs.files import TrustError


def test_system_roots_are_those_of_this_system() -> None:
    found = roots.system_roots()
    context = ssl.create_default_context(cadata=roots.bundle(found).decode())
    assert len(context.get_ca_certs()) > 20


def test_bundle_round_trip() -> None:
    found = roots.system_roots()
    assert roots.certificates(roots.bundle([*found, *found])) == list(dict.fromkeys(found))


def test_the_users_variable_is_not_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty.pem"))
    assert len(roots.system_roots()) > 20


def test_places_are_tried_in_order_and_certifi_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pems = [ssl.DER_cert_to_PEM_cert(der) for der in roots.system_roots()[:2]]
    (tmp_path / "second.pem").write_text(pems[0])
    (tmp_path / "cacert.pem").write_text(pems[1])
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(openssl_cafile="/no/such"))
    monkeypatch.setattr(roots, "COMMON_PLACES", ("/no/such/either", str(tmp_path / "second.pem")))
    certifi = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(roots.importlib.util, "find_spec", lambda name: certifi)  # type: ignore[attr-defined]
    assert roots.bundle(roots.system_roots()).decode() == pems[0]
    (tmp_path / "second.pem").write_text("no certificate")
    assert roots.bundle(roots.system_roots()).decode() == pems[1]
    (tmp_path / "cacert.pem").unlink()
    with pytest.raises(TrustError, match="ca-certificates or certifi"):
        roots.system_roots()


def test_keys_and_comments_are_passed_over(tmp_path: Path) -> None:
    [root] = roots.system_roots()[:1]
    pem = "# a comment\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" + ssl.DER_cert_to_PEM_cert(root)
    (tmp_path / "mixed.pem").write_text(pem.replace("\n", "\r\n"))
    assert roots.read_certificates(tmp_path / "mixed.pem") == [root]


def test_folder_of_certificates(tmp_path: Path) -> None:
    two = roots.system_roots()[:2]
    for index, der in enumerate(two):
        (tmp_path / f"{index}.crt").write_text(ssl.DER_cert_to_PEM_cert(der))
    assert roots.user_roots({"REQUESTS_CA_BUNDLE": str(tmp_path)}) == two


def test_variables_that_are_not_overridden_do_not_count(tmp_path: Path) -> None:
    assert roots.user_roots({"PIP_CERT": str(tmp_path / "missing"), "SSL_CERT_FILE": ""}) == []


@pytest.mark.parametrize("text", ["", "nothing", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----"])
def test_damaged_file_of_the_user(tmp_path: Path, text: str) -> None:
    (tmp_path / "corp.pem").write_text(text)
    with pytest.raises(TrustError, match=r"CURL_CA_BUNDLE names '.*corp.pem'"):
        roots.user_roots({"CURL_CA_BUNDLE": str(tmp_path / "corp.pem")})
