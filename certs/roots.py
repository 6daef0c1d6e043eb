"""The bundle's other half: whom this machine trusts already.

Our variables replace a client's own idea of trust, so the bundle must hold the roots of the system and of
every variable that we override; a company's CA that stands only in the user's SSL_CERT_FILE must not get
lost.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import re
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

from certs.environment import CA_VARIABLES
from certs.files import TrustError

COMMON_PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Gentoo, NixOS
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",  # older RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS, the BSDs
    "/opt/homebrew/etc/ca-certificates/cert.pem",  # Homebrew, which adds the keychain's
    "/usr/local/etc/ca-certificates/cert.pem",
)

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


def certificates(pem: bytes) -> list[bytes]:
    """The certificates of a PEM text, each as DER; comments, keys and anything else are passed over.

    Raises:
        ValueError: if what stands between two certificate markers is not base64.
    """
    try:
        return [base64.b64decode(b"".join(body.split()), validate=True) for body in _PEM.findall(pem)]
    except binascii.Error as error:
        raise ValueError(f"not base64 between certificate markers: {error}") from error


def read_certificates(path: Path) -> list[bytes]:
    """The certificates (DER) of a PEM file, or of every file in a folder, as `requests` allows.

    Raises:
        OSError: if it cannot be read.
        ValueError: if there is no certificate in it.
    """
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    found = [der for file in files for der in certificates(file.read_bytes())]
    if not found:
        raise ValueError("no certificate in it")
    return found


def system_roots() -> list[bytes]:
    """The roots of the operating system (DER): OpenSSL's default file, else a common place, else `certifi`'s.

    Raises:
        TrustError: if there are none to be found.
    """
    # `openssl_cafile`, not `cafile`: the latter is the user's SSL_CERT_FILE, which user_roots() looks after.
    places = [ssl.get_default_verify_paths().openssl_cafile, *COMMON_PLACES]
    if (certifi := importlib.util.find_spec("certifi")) and certifi.origin:
        places.append(str(Path(certifi.origin).with_name("cacert.pem")))
    problems: list[str] = []
    for place in map(Path, dict.fromkeys(places)):
        try:
            return read_certificates(place)
        except (OSError, ValueError) as error:
            problems.append(f"{place}: {error}")
    raise TrustError("no trusted roots on this machine, install ca-certificates or certifi:\n" + "\n".join(problems))


def user_roots(environ: Mapping[str, str]) -> list[bytes]:
    """The certificates (DER) of every variable in `environ` that a harness's environment overrides.

    Raises:
        TrustError: if a variable names something that cannot be read: going on would lose a CA in silence.
    """
    found: list[bytes] = []
    for place in dict.fromkeys(environ[name] for name in CA_VARIABLES if environ.get(name)):
        try:
            found += read_certificates(Path(place))
        except (OSError, ValueError) as error:
            named = ", ".join(name for name in CA_VARIABLES if environ.get(name) == place)
            raise TrustError(f"{named} names {place!r}, which cannot be used ({error}): mend or unset it") from error
    return found


def bundle(ders: Iterable[bytes]) -> bytes:
    """One PEM text of the given certificates (DER), each once, in order."""
    return b"".join(ssl.DER_cert_to_PEM_cert(der).encode() for der in dict.fromkeys(ders))
