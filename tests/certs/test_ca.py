from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs import ca, roots
from certs.files import TrustError
from tests.certs.racing import race

HOSTS = ("api.openai.com", "api.anthropic.com")
KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def certificate(home: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((home / "certs" / ca.CERTIFICATE_FILE).read_bytes())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def corporate() -> bytes:
    """A self-signed CA (PEM) such as a company hands out."""
    return self_signed("Example Corp")


def self_signed(organization: str, *, key: ec.EllipticCurvePrivateKey | None = None) -> bytes:
    key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    signed = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=9))
    return signed.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def test_certificate_says_what_it_may_sign(home: Path) -> None:
    ca.ensure(home, HOSTS, environ={})
    extensions = certificate(home).extensions
    constraints = extensions.get_extension_for_class(x509.NameConstraints)
    assert constraints.critical
    assert constraints.value.permitted_subtrees == [
        x509.DNSName("api.anthropic.com"),
        x509.DNSName("api.openai.com"),
    ]
    assert constraints.value.excluded_subtrees == [
        x509.IPAddress(ipaddress.ip_network("0.0.0.0/0")),
        x509.IPAddress(ipaddress.ip_network("::/0")),
    ]
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    assert extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_files_are_private(home: Path) -> None:
    old = os.umask(0)
    try:
        ca.ensure(home, HOSTS, environ={})
    finally:
        os.umask(old)
    directory = home / "certs"
    assert mode(directory) == 0o700
    assert mode(directory / "mitmproxy-ca.pem") == 0o600
    assert mode(directory / "session-secret") == 0o600
    assert not [path for path in directory.iterdir() if path.name.startswith(".mitm")]


def test_loose_permissions_are_tightened(home: Path) -> None:
    ca.ensure(home, HOSTS, environ={})
    directory = home / "certs"
    for name in ("mitmproxy-ca.pem", "session-secret"):
        (directory / name).chmod(0o644)
    directory.chmod(0o755)
    ca.ensure(home, HOSTS, environ={})
    assert mode(directory) == 0o700
    assert mode(directory / "mitmproxy-ca.pem") == mode(directory / "session-secret") == 0o600


def test_ensure_is_idempotent(home: Path) -> None:
    first = ca.ensure(home, HOSTS, environ={})
    before = {path.name: path.read_bytes() for path in first.directory.iterdir()}
    second = ca.ensure(home, reversed(HOSTS), environ={})
    assert (first.outcome, second.outcome) == ("made", "kept")
    assert first.fingerprint == second.fingerprint
    assert {path.name: path.read_bytes() for path in first.directory.iterdir()} == before


def test_other_hosts_mean_a_new_certificate_of_the_same_key(home: Path) -> None:
    ca.ensure(home, HOSTS, environ={})
    before = certificate(home)
    authority = ca.ensure(home, [*HOSTS, "api.x.ai"], environ={})
    after = certificate(home)
    assert authority.outcome == "re-signed"
    assert authority.hosts == ("api.anthropic.com", "api.openai.com", "api.x.ai")
    assert (before.public_key(), before.subject) == (after.public_key(), after.subject)
    assert before.serial_number != after.serial_number
    der = after.public_bytes(serialization.Encoding.DER)
    in_bundle = roots.read_certificates(authority.bundle)
    assert der in in_bundle
    assert before.public_bytes(serialization.Encoding.DER) not in in_bundle


def test_near_expiry_is_renewed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ca.ensure(home, HOSTS, environ={})
    assert ca.ensure(home, HOSTS, environ={}).outcome == "kept"
    monkeypatch.setattr(ca, "_now", lambda: datetime.datetime.fromtimestamp(first.not_after - 20 * 86400, datetime.UTC))
    second = ca.ensure(home, HOSTS, environ={})
    assert second.outcome == "re-signed"
    assert second.not_after > first.not_after + 4 * 365 * 86400


def test_renew_makes_a_new_key(home: Path) -> None:
    ca.ensure(home, HOSTS, environ={})
    before = certificate(home)
    assert ca.ensure(home, HOSTS, environ={}, renew=True).outcome == "made"
    assert certificate(home).public_key() != before.public_key()
    assert certificate(home).subject != before.subject


def test_load_changes_no_hosts_and_needs_an_authority(home: Path) -> None:
    with pytest.raises(TrustError, match="tap certs"):
        ca.load(home, environ={})
    made = ca.ensure(home, [*HOSTS, "llm.example.com"], environ={})
    assert ca.load(home, environ={}).fingerprint == made.fingerprint


@pytest.mark.parametrize("name", ["ca.pem", "bundle.pem"])
@pytest.mark.parametrize("damage", [None, b"", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"])
def test_public_files_are_mended(home: Path, name: str, damage: bytes | None) -> None:
    path = ca.ensure(home, HOSTS, environ={}).directory / name
    whole = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    ca.load(home, environ={})
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda pem: b"", "damaged"),
        (lambda pem: pem[:100], "damaged"),
        (lambda pem: pem.partition(b"-----BEGIN CERTIFICATE")[0], "damaged"),
        (lambda pem: pem_key(KEY) + pem[pem.index(b"-----BEGIN CERT") :], "key is not its"),
        (lambda pem: self_signed("mitmproxy"), "damaged"),
        (lambda pem: pem_key(KEY) + self_signed("mitmproxy", key=KEY), "did not make.*O=mitmproxy"),
        (lambda pem: pem_key(KEY) + self_signed("harnesstap", key=KEY), "did not make"),
    ],
)  # fmt: skip
def test_what_is_not_whole_and_ours_is_never_overwritten(home: Path, damage: object, message: str) -> None:
    path = ca.ensure(home, HOSTS, environ={}).directory / ca.KEY_FILE
    assert callable(damage)
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    for renew in (False, True):
        with pytest.raises(TrustError, match=message) as raised:
            ca.ensure(home, [*HOSTS, "api.x.ai"], environ={}, renew=renew)
        assert str(path) in str(raised.value)
    with pytest.raises(TrustError, match=message):
        ca.load(home, environ={})
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO"])
def test_corporate_authority_is_kept(home: Path, tmp_path: Path, variable: str) -> None:
    (tmp_path / "corp.pem").write_bytes(corporate())
    [corp] = roots.read_certificates(tmp_path / "corp.pem")
    authority = ca.ensure(home, HOSTS, environ={variable: str(tmp_path / "corp.pem")})
    bundled = roots.read_certificates(authority.bundle)
    assert corp in bundled
    assert set(roots.system_roots()) < set(bundled)
    assert len(bundled) == len(set(bundled))


def test_own_bundle_is_never_taken_in(home: Path, tmp_path: Path) -> None:
    """`tap run` within `tap run`: of the bundle that the variables name, the user's CA stays and ours does not."""
    (tmp_path / "corp.pem").write_bytes(corporate())
    [corp] = roots.read_certificates(tmp_path / "corp.pem")
    first = ca.ensure(home, HOSTS, environ={"SSL_CERT_FILE": str(tmp_path / "corp.pem")})
    nested = {"SSL_CERT_FILE": str(first.bundle), "NODE_EXTRA_CA_CERTS": str(first.certificate)}
    second = ca.ensure(home, HOSTS, environ=nested, renew=True)
    ours = [der for der in roots.read_certificates(second.bundle) if b"harnesstap" in der]
    assert ours == roots.read_certificates(second.certificate)
    assert corp in roots.read_certificates(second.bundle)


def test_load_adds_to_the_bundle_and_takes_nothing_away(home: Path, tmp_path: Path) -> None:
    (tmp_path / "corp.pem").write_bytes(corporate())
    (tmp_path / "other.pem").write_bytes(corporate())
    authority = ca.ensure(home, HOSTS, environ={"SSL_CERT_FILE": str(tmp_path / "corp.pem")})
    ca.load(home, environ={"SSL_CERT_FILE": str(tmp_path / "other.pem")})
    ca.load(home, environ={})
    bundled = roots.read_certificates(authority.bundle)
    for name in ("corp.pem", "other.pem"):
        assert roots.read_certificates(tmp_path / name)[0] in bundled


def test_unreadable_corporate_authority_is_an_error(home: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(TrustError, match=r"SSL_CERT_FILE, CURL_CA_BUNDLE names .*missing\.pem"):
        ca.ensure(home, HOSTS, environ={"SSL_CERT_FILE": missing, "CURL_CA_BUNDLE": missing})


def test_folder_of_somebody_else(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)
    with pytest.raises(TrustError, match="another user"):
        ca.ensure(home, HOSTS, environ={})


def test_home_that_is_a_file(home: Path) -> None:
    home.write_text("")
    with pytest.raises(TrustError, match="not a folder"):
        ca.ensure(home, HOSTS, environ={})


def test_processes_at_once_agree(home: Path) -> None:
    """All start from nothing at the same moment, with two ideas of the hosts; the files always belong together."""
    script = (
        "from pathlib import Path; from certs import ca; go()\n"
        "for _ in range(20): print(ca.ensure(Path(sys.argv[1]), sys.argv[2:], environ={}).outcome)"
    )
    few, more = [str(home), *HOSTS], [str(home), *HOSTS, "api.x.ai"]
    outcomes = "".join(race(script, few, more, few, more)).split()
    assert outcomes.count("made") == 1
    assert len(outcomes) == 80
    context = ssl.create_default_context(cafile=str(home / "certs" / "bundle.pem"))
    fingerprint = ca.load(home, environ={}).fingerprint
    assert certificate(home).fingerprint(hashes.SHA256()).hex(":").upper() == fingerprint
    der = certificate(home).public_bytes(serialization.Encoding.DER)
    assert der in context.get_ca_certs(binary_form=True)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["API.OpenAI.com.", "api.openai.com"], ("api.openai.com",)),
        (["a.example.com", "example.com", "notexample.com"], ("example.com", "notexample.com")),
        (["xn--bcher-kva.example"], ("xn--bcher-kva.example",)),
    ],
)
def test_permitted_names(hosts: list[str], expected: tuple[str, ...]) -> None:
    assert ca.permitted_names(hosts) == expected


@pytest.mark.parametrize(
    "host",
    [
        "",
        "com",
        "localhost",
        "10.0.0.5",
        "::1",
        "*.example.com",
        ".a.com",
        "a b.com",
        "ü.com",
        "-a.com",
        f"{'a' * 64}.a",
    ],
)
def test_names_that_cannot_be_permitted(host: str) -> None:
    with pytest.raises(ValueError, match="is not a DNS name"):
        ca.permitted_names(["api.openai.com", host])


def test_no_host_is_not_every_host() -> None:
    with pytest.raises(ValueError, match="no provider host"):
        ca.permitted_names([])
