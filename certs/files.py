"""Files that hold secrets: private folders, atomic writes, one writer at a time. POSIX only (`flock`)."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOME_VARIABLE = "HARNESSTAP_HOME"


class TrustError(ValueError):
    """Something under `<home>/certs` cannot be used; the message names the file and says what to do."""


def default_home() -> Path:
    """`$HARNESSTAP_HOME`, or `~/.harnesstap`."""
    return Path(os.environ.get(HOME_VARIABLE) or "~/.harnesstap").expanduser()


def certs_directory(home: Path) -> Path:
    """`<home>/certs`, made if need be. Both folders are private (0700) and must belong to this user.

    Raises:
        TrustError: if one of them is not a folder, or is another user's.
    """
    directory = home / "certs"
    for folder in (home, directory):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise TrustError(f"{folder} is not a folder: move it away, or set {HOME_VARIABLE}") from error
        if folder.stat().st_uid != os.geteuid():
            raise TrustError(f"{folder} belongs to another user: set {HOME_VARIABLE} to a folder of your own")
    # `mkdir` leaves an existing folder as it is. The home may hold more than secrets, so only certs/ is
    # tightened.
    directory.chmod(0o700)
    return directory


@contextmanager
def locked(directory: Path, name: str = ".lock") -> Iterator[None]:
    """Hold the folder's lock of that name: of several processes that make or refresh the files, one works and the
    others wait."""
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes, mode: int) -> None:
    """Replace `path` by `data` with permission bits `mode`: a reader sees the old file or the new one,
    whole."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # O_EXCL and the mode at creation: a secret is at no moment readable by others.
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask says
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
