"""Trust by file, for programs that get no variables: what to show in place of the files that they read.

System libraries read a bundle or a folder of roots, Python packages the bundle that certifi ships. Node, Bun and Deno
have their roots built in: no file changes those.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from certs.roots import COMMON_PLACES

_FOLDER = Path("/etc/ssl/certs")
_NSSWITCH = Path("/etc/nsswitch.conf")
_RESOLV = Path("/etc/resolv.conf")


def shown(bundle: Path, program: str, folder: Path) -> dict[Path, Path]:
    """What to show where, by the path it is seen at; `folder` takes what must be made for it.

    Args:
        bundle: PEM of the system's roots and our CA.
        program: what will be run, whose Python packages are looked at.
        folder: an empty one that lives as long as the program.
    """
    at = {path: bundle for path in map(Path, COMMON_PLACES) if path.is_file()}
    at |= dict.fromkeys(_certifi(program), bundle)
    if _FOLDER.is_dir():
        at = {path: source for path, source in at.items() if _FOLDER not in path.parents}
        at[_FOLDER] = _hashed(bundle, folder / "certs")
    # Names are looked up with the network's own server, not by a daemon outside it.
    for path, text in ((_RESOLV, "nameserver 127.0.0.1\n"), (_NSSWITCH, "hosts: files dns\n")):
        if path.exists():
            (folder / path.name).write_text(_other_lines(path, text))
            at[path] = folder / path.name
    return at


def _other_lines(path: Path, text: str) -> str:
    """A configuration with its lines of one keyword replaced by `text`."""
    keyword = text.split()[0]
    kept = [line for line in path.read_text().splitlines() if line.split()[:1] != [keyword]]
    return "\n".join([*kept, text])


def _hashed(bundle: Path, target: Path) -> Path:
    """The system's folder of roots with our CA in it: OpenSSL looks a root up there by the hash of its subject."""
    shutil.copytree(_FOLDER, target, symlinks=True)
    for path in map(Path, COMMON_PLACES):
        if path.parent == _FOLDER and path.exists():
            (target / path.name).unlink()
            shutil.copyfile(bundle, target / path.name)
    ours = bundle.with_name("ca.pem")
    number = next(n for n in range(100) if not os.path.lexists(target / f"{subject_hash(ours)}.{n}"))
    shutil.copyfile(ours, target / f"{subject_hash(ours)}.{number}")
    return target


def subject_hash(certificate: Path) -> str:
    """`openssl x509 -subject_hash`: SHA-1 of the subject in UTF-8, lower case, with single blanks."""
    from cryptography import x509

    subject = x509.load_pem_x509_certificate(certificate.read_bytes()).subject
    canonical = x509.Name(
        x509.NameAttribute(each.oid, " ".join(str(each.value).split()).lower()) for each in subject
    ).public_bytes()
    inside = canonical[2 if canonical[1] < 0x80 else 2 + (canonical[1] & 0x7F) :]  # without the outer SEQUENCE
    return hashlib.sha1(inside, usedforsecurity=False).digest()[3::-1].hex()


def _certifi(program: str) -> Iterator[Path]:
    """The bundles of certifi in the Python environments that `program` may run in."""
    names = (program, "python3", "python")
    found = [path for name in names if (path := shutil.which(name)) is not None]
    for prefix in dict.fromkeys([*(Path(path).absolute().parents[1] for path in found), Path(sys.prefix)]):
        for package in ("certifi", "pip/_vendor/certifi"):
            yield from prefix.glob(f"lib/python3*/site-packages/{package}/cacert.pem")
