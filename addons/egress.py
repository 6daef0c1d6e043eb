"""What may leave: hosts that are no model provider's, such as package registries. Providers never are let out.

refuse   nothing but the hosts that are allowed by name (the default: what a model reaches, it can learn to lean on)
tunnel   everything, untouched
record   everything; which session sent and received how many bytes, by host, is written to the record

What is allowed by name is recorded too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Policy = Literal["refuse", "tunnel", "record"]

PRESETS: dict[str, tuple[str, ...]] = {
    "pypi": ("pypi.org", "files.pythonhosted.org"),
    "npm": ("registry.npmjs.org", "registry.yarnpkg.com"),
    "crates": ("crates.io", "index.crates.io", "static.crates.io"),
    "go": ("proxy.golang.org", "sum.golang.org"),
    "rubygems": ("rubygems.org", "index.rubygems.org"),
    "debian": ("deb.debian.org", "security.debian.org"),
    "ubuntu": ("archive.ubuntu.com", "*.archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"),
    "github": ("github.com", "api.github.com", "codeload.github.com", "*.githubusercontent.com", "ghcr.io"),
    "gitlab": ("gitlab.com", "registry.gitlab.com"),
    "huggingface": ("huggingface.co", "*.hf.co"),
}
"""What `tap up --allow` knows by a word: package registries and git hosts."""

_HOST = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*")


@dataclass(frozen=True, slots=True)
class Egress:
    """Which hosts are let out. `allowed` are DNS names, or `*.` and a domain for everything below it."""

    policy: Policy = "refuse"
    allowed: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, policy: str, allow: str) -> Egress:
        """From words: `allow` has presets and hosts, separated by commas or blanks.

        Raises:
            ValueError: naming the word that is not understood.
        """
        if policy not in get_args(Policy):
            raise ValueError(f"egress {policy!r}: choose one of {', '.join(get_args(Policy))}")
        hosts: set[str] = set()
        for word in allow.lower().replace(",", " ").split():
            if word in PRESETS:
                hosts.update(PRESETS[word])
            elif "." in word and _HOST.fullmatch(word):
                hosts.add(word)
            else:
                raise ValueError(f"allow {word!r}: write a host such as example.com, or one of {', '.join(PRESETS)}")
        return cls(policy, frozenset(hosts))  # type: ignore[arg-type]  # checked above

    def lets_out(self, host: str) -> bool:
        """Whether a connection to `host`, which is no provider, may be opened."""
        return self.policy != "refuse" or self._named(host)

    def records(self, host: str) -> bool:
        """Whether what goes to `host` is counted."""
        return self.policy == "record" or self._named(host)

    def _named(self, host: str) -> bool:
        labels = host.lower().rstrip(".").split(".")
        domains = ("*." + ".".join(labels[start:]) for start in range(1, len(labels)))
        return ".".join(labels) in self.allowed or any(domain in self.allowed for domain in domains)


@dataclass(slots=True)
class Traffic:
    """One connection, or one request in plain HTTP, to a host that was let out. Bytes as the harness sent and got
    them: in a tunnel those of TLS."""

    session: str | None
    host: str
    sent: int = 0
    received: int = 0

    def sending(self, chunk: bytes) -> bytes:
        """Count a piece of a request that is passed on."""
        self.sent += len(chunk)
        return chunk

    def receiving(self, chunk: bytes) -> bytes:
        """Count a piece of a response that is passed on."""
        self.received += len(chunk)
        return chunk
