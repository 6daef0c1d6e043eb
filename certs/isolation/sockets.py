"""Counting direct connections where no namespace can be made: a look, many times a second, at a command's sockets.

What opens and closes between two looks is not seen, so a count of none is no proof.
"""

from __future__ import annotations

import ipaddress
import os
import struct
from pathlib import Path

_PROC = Path("/proc")
_SYN_SENT, _ESTABLISHED = "02", "01"


def connections(leader: int, upstream: set[tuple[str, int]]) -> set[str]:
    """What the processes of a session or group led by `leader` are connected to, other than `upstream` and loopback."""
    inodes = {inode for pid in _family(leader) for inode in _inodes(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / str(leader) / "net" / table).read_text().splitlines()[1:]
        except OSError:  # it has ended, or there is no IPv6
            continue
        for line in lines:
            fields = line.split()
            if fields[9] not in inodes or fields[3] not in (_SYN_SENT, _ESTABLISHED):
                continue
            address, port = _end(fields[2])
            if not address.is_loopback and (str(address), port) not in upstream:
                found.add(f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}")
    return found


def _family(leader: int) -> list[int]:
    """The process and all that descend from it."""
    found = [leader]
    for pid in found:
        for children in (_PROC / str(pid) / "task").glob("*/children"):
            try:
                found += [int(child) for child in children.read_text().split()]
            except OSError:  # ended meanwhile
                continue
    return found


def _inodes(pid: int) -> list[str]:
    found = []
    try:
        for entry in os.scandir(_PROC / str(pid) / "fd"):
            target = os.readlink(entry.path)
            if target.startswith("socket:["):
                found.append(target[8:-1])
    except OSError:  # ended meanwhile, or another user's
        pass
    return found


def _end(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """An address and port as /proc/net writes them: words in the machine's byte order."""
    address, _, port = text.partition(":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    parsed = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed, int(port, 16)
