"""A name server for a network that reaches nobody: every name gets an address of no host, and is known by it again."""

from __future__ import annotations

import ipaddress
import struct

_POOL = ipaddress.IPv4Network("198.18.0.0/15")
"""Set aside for tests of network devices: no host has one of these."""
_A, _HEADER = 1, 12
_A_RECORD = struct.pack(">HHHIH", 0xC00C, _A, 1, 60, 4)  # of the name in the question: class IN, for a minute


class Names:
    """The names that were asked for, and their addresses."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._addresses: dict[str, str] = {}

    @property
    def asked(self) -> list[str]:
        """In order of their first question."""
        return list(self._addresses)

    def name_of(self, address: str) -> str:
        """The name that an address was given for; else the address itself."""
        return self._names.get(address, address)

    def answer(self, query: bytes) -> bytes | None:
        """The reply to a DNS query; None for what is none. Names have an IPv4 address and no other record."""
        try:
            name, end = _question(query)
            (kind,) = struct.unpack_from(">H", query, end)
        except (IndexError, struct.error):
            return None
        record = b"" if kind != _A else _A_RECORD + ipaddress.IPv4Address(self._address_of(name)).packed
        head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1 if record else 0, 0, 0)
        return head + query[_HEADER : end + 4] + record

    def _address_of(self, name: str) -> str:
        if name not in self._addresses:
            address = str(_POOL[1 + len(self._addresses) % (_POOL.num_addresses - 2)])
            self._addresses[name], self._names[address] = address, name
        return self._addresses[name]


def _question(query: bytes) -> tuple[str, int]:
    """The name that a DNS query asks for, and where the question's type begins."""
    labels, at = [], _HEADER
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    return ".".join(labels).lower(), at + 1
