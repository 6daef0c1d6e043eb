"""What isolation asks of the Linux kernel: namespaces, a loopback that is the whole internet, mounts.

A user namespace comes first, for root as well: only its owner's capabilities count inside, so nothing there can enter
the machine's own network again. It maps every id of the machine to itself, or, for an ordinary user, that one user; a
command sees files and itself as it would outside.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
from pathlib import Path

IPV4_FRAMES, IPV6_FRAMES = 0x0800, 0x86DD

_libc = ctypes.CDLL(None, use_errno=True)
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_RTM_NEWROUTE, _NLMSG_ERROR, _RTA_OIF = 24, 2, 4
_NEW = 0x1 | 0x4 | 0x200 | 0x400  # REQUEST, ACK, EXCL, CREATE
_TABLE_LOCAL, _PROTO_BOOT, _SCOPE_HOST, _LOCAL = 255, 3, 254, 2


def leave(*, mounts: bool) -> None:
    """Go into new user and network namespaces, and a mount namespace if asked; another process must `map_ids` then."""
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET | (os.CLONE_NEWNS if mounts else 0))


def map_ids(pid: int) -> None:
    """Let the ids of a process that has left be those they were outside; called by its parent."""
    proc = Path("/proc")
    if os.geteuid() != 0:
        (proc / str(pid) / "setgroups").write_text("deny")  # the kernel's condition for a user's own map
    for kind, own in (("gid", os.getegid()), ("uid", os.geteuid())):
        ids = f"{own} {own} 1"
        if os.geteuid() == 0:  # all ids there are here, which in a container may be some
            ranges = [line.split() for line in (proc / "self" / f"{kind}_map").read_text().splitlines()]
            ids = "\n".join(f"{first} {first} {count}" for first, _, count in ranges)
        (proc / str(pid) / f"{kind}_map").write_text(ids)


def open_loopback() -> None:
    """Bring loopback up and make every address there is one of its own.

    A connection to anywhere then arrives here, where nobody listens unless we do: it is refused at once, and seen.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    families = [socket.AF_INET, socket.AF_INET6] if has_ipv6() else [socket.AF_INET]
    for family in families:
        _route_all_to_loopback(family)


def has_ipv6() -> bool:
    """Whether this network has IPv6 at all."""
    return Path("/proc/net/if_inet6").exists()


def _route_all_to_loopback(family: int) -> None:
    """`ip route add local default dev lo`, without iproute2."""
    route = struct.pack("=8BI", family, 0, 0, 0, _TABLE_LOCAL, _PROTO_BOOT, _SCOPE_HOST, _LOCAL, 0)
    route += struct.pack("=HHi", 8, _RTA_OIF, socket.if_nametoindex("lo"))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(route), _RTM_NEWROUTE, _NEW, 1, 0) + route)
        answer = kernel.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    (error,) = struct.unpack_from("=i", answer, 16)
    if kind != _NLMSG_ERROR or error:
        raise OSError(-error, f"no route to loopback: {os.strerror(-error)}")


def packets(kind: int) -> socket.socket:
    """A socket that sees every frame of `kind` in this network."""
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind))


def own_mounts() -> None:
    """Let what is mounted here from now on be seen here alone."""
    _mount(None, "/", _MS_REC | _MS_PRIVATE)


def show_at(source: Path, target: Path) -> None:
    """Bind a file or folder over an existing one."""
    _mount(source, os.path.realpath(target), _MS_BIND)


def die_with_parent() -> None:
    """Be killed when the parent ends, however it ends."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def _mount(source: Path | None, target: str, flags: int) -> None:
    from_ = None if source is None else os.fsencode(source)
    if _libc.mount(from_, os.fsencode(target), None, flags, None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot mount on {target}: {os.strerror(code)}")
