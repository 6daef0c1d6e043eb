"""Our certificate authority: good for the provider hosts, for a few years, for nothing else.

Harnesses must trust it, so its key is worth stealing. Critical X.509 name constraints make the theft
pointless: a certificate for any other host, and any for an IP address, is rejected by the client's own TLS
library.

    <home>/certs/               0700
        mitmproxy-ca.pem        0600  key and certificate; mitmproxy looks for this name in its confdir
        ca.pem                        the certificate alone
        bundle.pem                    what harnesses trust: ours, the roots of the system, the user's own
        session-secret          0600  see certs.keys

Everything but the two secrets is derived from them and is mended without asking. When the provider hosts
change or expiry is near, the certificate is signed anew for the SAME key and name, so that a running proxy
and harnesses that hold the older certificate keep understanding each other; `renew` makes a new key.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs import roots
from certs.files import TrustError, certs_directory, locked, write_atomic
from certs.keys import ensure_secret

ORGANIZATION = "harnesstap"
KEY_FILE, CERTIFICATE_FILE, BUNDLE_FILE = "mitmproxy-ca.pem", "ca.pem", "bundle.pem"
VALIDITY = datetime.timedelta(days=5 * 365)
RENEW_BEFORE = datetime.timedelta(days=30)
CLOCK_SKEW = datetime.timedelta(days=2)

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})+")

Outcome = Literal["made", "re-signed", "kept"]


@dataclass(frozen=True, slots=True)
class Authority:
    """The CA as it stands on disk. `not_after` is in seconds since the epoch, `fingerprint` SHA-256 in hex
    pairs."""

    directory: Path
    hosts: tuple[str, ...]
    fingerprint: str
    not_after: float
    outcome: Outcome

    @property
    def bundle(self) -> Path:
        """PEM: our CA, the roots of the system, the user's own."""
        return self.directory / BUNDLE_FILE

    @property
    def certificate(self) -> Path:
        """PEM: our CA alone."""
        return self.directory / CERTIFICATE_FILE


def ensure(
    home: Path, hosts: Iterable[str], *, environ: Mapping[str, str] | None = None, renew: bool = False
) -> Authority:
    """Make the CA, or bring it up to date: idempotent, and safe in several processes at once.

    Args:
        home: the product's folder; the files go to `<home>/certs`.
        hosts: DNS names that the CA may sign for; each also permits its subdomains.
        environ: where the user's own CA variables stand, `os.environ` by default.
        renew: make a new key even if the present one will do.

    Raises:
        ValueError: for a host that is no full DNS name.
        TrustError: if a file there is damaged, is not ours, or a CA variable of the user cannot be read.
    """
    permitted = permitted_names(hosts)
    trusted = _trusted_besides_ours(os.environ if environ is None else environ)
    directory = certs_directory(home)
    with locked(directory):
        path = directory / KEY_FILE
        outcome: Outcome = "kept"
        if not path.exists():
            key, outcome = ec.generate_private_key(ec.SECP256R1()), "made"
            certificate = _sign(key, permitted)
        else:
            key, certificate = _read(path)
            if renew:
                key, outcome = ec.generate_private_key(ec.SECP256R1()), "made"
            elif _hosts(certificate) != permitted or certificate.not_valid_after_utc < _now() + RENEW_BEFORE:
                outcome = "re-signed"
            if outcome != "kept":
                certificate = _sign(key, permitted)
        if outcome != "kept":
            write_atomic(path, _pem(key) + certificate.public_bytes(serialization.Encoding.PEM), 0o600)
        elif path.stat().st_mode & 0o077:
            path.chmod(0o600)
        _write_public(directory, certificate, trusted)
    ensure_secret(home)
    return _authority(directory, certificate, outcome)


def load(home: Path, *, environ: Mapping[str, str] | None = None) -> Authority:
    """The CA as it is, for those who use it and do not decide for which hosts it is good (`tap run`).

    The bundle gains what `environ` trusts and it lacks; it loses nothing, since another shell may need that.

    Raises:
        TrustError: if there is no CA, or as in :func:`ensure`.
    """
    trusted = _trusted_besides_ours(os.environ if environ is None else environ)
    directory = certs_directory(home)
    with locked(directory):
        path = directory / KEY_FILE
        if not path.exists():
            raise TrustError(f"there is no certificate authority in {directory} yet: run `tap certs`")
        _, certificate = _read(path)
        present = _certificates_or_none(directory / BUNDLE_FILE)
        _write_public(directory, certificate, [*trusted, *(der for der in present if not _is_ours(der))])
    ensure_secret(home)
    return _authority(directory, certificate, "kept")


def permitted_names(hosts: Iterable[str]) -> tuple[str, ...]:
    """`hosts` as name constraints: lower case, sorted, without those that a parent domain in it permits
    already.

    Raises:
        ValueError: for an IP address, a wildcard, a bare top-level domain, or anything else that is no DNS
        name;
            and if there is no host at all, since no constraint would permit every host.
    """
    names = {host.lower().rstrip(".") for host in hosts}
    for name in names:
        if not _HOST.fullmatch(name) or name.rpartition(".")[2].isdigit() or len(name) > 253:
            raise ValueError(
                f"{name!r} is not a DNS name that a certificate can be limited to (such as api.example.com)"
            )
    if not names:
        raise ValueError("no provider host given: an authority for every host is not what you want")

    def has_parent(name: str) -> bool:
        labels = name.split(".")
        return any(".".join(labels[start:]) in names for start in range(1, len(labels)))

    return tuple(sorted(name for name in names if not has_parent(name)))


def _sign(key: ec.EllipticCurvePrivateKey, permitted: tuple[str, ...]) -> x509.Certificate:
    ski = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # A name of its own for each key: clients that hold an older CA of ours besides can tell the two apart.
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, f"harnesstap local CA {ski.digest.hex()[:8]}"),
        ]
    )
    now = _now()
    usage = x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    # RFC 5280: a constraint speaks only of names of its own kind. With DNS names permitted and nothing said
    # of addresses, every IP address would be allowed; hence both families are excluded outright.
    constraints = x509.NameConstraints(
        permitted_subtrees=[x509.DNSName(host) for host in permitted],
        excluded_subtrees=[
            x509.IPAddress(ipaddress.ip_network("0.0.0.0/0")),
            x509.IPAddress(ipaddress.ip_network("::/0")),
        ],
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        # Server certificates only: name constraints say nothing about mail or code signing.
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(ski, critical=False)
        .add_extension(constraints, critical=True)
        .sign(key, hashes.SHA256())
    )


def _read(path: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Key and certificate of our own making; anything else is an error, never a reason to write over it."""
    advice = "move it away and run `tap certs` to make a new one"
    pem = path.read_bytes()
    try:
        key = serialization.load_pem_private_key(pem, password=None)
        certificate = x509.load_pem_x509_certificate(pem)
    except (ValueError, TypeError) as error:
        raise TrustError(f"{path} is damaged ({error}): {advice}") from error
    if not _is_ours(certificate.public_bytes(serialization.Encoding.DER)) or not _hosts(certificate):
        issuer = certificate.subject.rfc4514_string()
        raise TrustError(f"{path} holds a certificate authority that harnesstap did not make ({issuer}): {advice}")
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise TrustError(f"{path} is damaged (its key is not its certificate's): {advice}")
    return key, certificate


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    """What the name constraints of `certificate` permit; nothing if it is not constrained the way ours
    are."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.NameConstraints)
    except x509.ExtensionNotFound:
        return ()
    subtrees = extension.value.permitted_subtrees or []
    return tuple(sorted(name.value for name in subtrees if isinstance(name, x509.DNSName)))


def _is_ours(der: bytes) -> bool:
    # Roots in the wild need not parse by cryptography's rules: look closer only at those that bear our name.
    if ORGANIZATION.encode() not in der:
        return False
    subject = x509.load_der_x509_certificate(der).subject
    return any(part.value == ORGANIZATION for part in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))


def _trusted_besides_ours(environ: Mapping[str, str]) -> list[bytes]:
    # Inside `tap run` the variables name our own bundle: its other roots are the user's, an old CA of ours
    # is not.
    return [der for der in [*roots.system_roots(), *roots.user_roots(environ)] if not _is_ours(der)]


def _write_public(directory: Path, certificate: x509.Certificate, trusted: Iterable[bytes]) -> None:
    ours = certificate.public_bytes(serialization.Encoding.DER)
    for name, ders in ((CERTIFICATE_FILE, [ours]), (BUNDLE_FILE, [ours, *trusted])):
        path, pem = directory / name, roots.bundle(ders)
        if not path.exists() or path.read_bytes() != pem:
            write_atomic(path, pem, 0o644)


def _certificates_or_none(path: Path) -> list[bytes]:
    try:
        return roots.read_certificates(path)
    except (OSError, ValueError):  # missing or damaged: it is about to be written anew
        return []


def _authority(directory: Path, certificate: x509.Certificate, outcome: Outcome) -> Authority:
    return Authority(
        directory=directory,
        hosts=_hosts(certificate),
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        outcome=outcome,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
