"""What a network's frames say of connections that were begun. Sans-IO: frames in, `host:port` out."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable

_ETHERNET = 14
_TCP, _UDP, _SYN, _ACK = 6, 17, 0x02, 0x10
_DNS = 53


class Watch:
    """Notes connections past the proxy: to what is not loopback's, and not `carried` there (of an address and port)."""

    def __init__(self, carried: Callable[[str, int], bool] = lambda *_: False) -> None:
        self._carried = carried
        self._tried: dict[tuple[str, int, int, int], None] = {}

    @property
    def tried(self) -> list[tuple[str, int, str]]:
        """Address, port, and `tcp` or `udp`; once for each connection."""
        return [(address, port, "udp" if kind == _UDP else "tcp") for address, port, kind, _ in self._tried]

    def see(self, frame: bytes) -> None:
        """Look at one frame of IPv4 or IPv6."""
        packet = frame[_ETHERNET:]
        if packet[0] >> 4 == 4:
            kind, target, body = packet[9], ipaddress.ip_address(packet[16:20]), packet[(packet[0] & 15) * 4 :]
        else:
            kind, target, body = packet[6], ipaddress.ip_address(packet[24:40]), packet[40:]
        if target.is_loopback or target.is_multicast or kind not in (_TCP, _UDP):
            return
        source, port = struct.unpack_from(">HH", body)
        if kind == _TCP:
            if body[13] & (_SYN | _ACK) != _SYN or self._carried(str(target), port):
                return
        elif _DNS in (source, port) or self._answers(source):
            return
        self._tried[str(target), port, kind, source] = None

    def _answers(self, source: int) -> bool:
        """A UDP packet from where one was sent to."""
        return any(port == source for _, port, kind, _ in self._tried if kind == _UDP)
