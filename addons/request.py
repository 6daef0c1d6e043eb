"""One model call as it arrived."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from addons.caller import Caller
from addons.conversation import Call
from addons.dialects.base import Dialect


@dataclass(frozen=True)
class Request:
    """One model call as it arrived: `body` is the parsed JSON, `raw` the bytes it came as."""

    dialect: Dialect
    route: str
    caller: Caller
    body: dict[str, Any]
    raw: bytes
    call: Call
    received_at: float
    reply_id: str
    """The id the reply will carry on the wire."""

    @cached_property
    def digest(self) -> str:
        """sha256 of the raw body, hex; once a call, since a body may be megabytes."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def key(self) -> str:
        """What a retry of this call has in common with it: the body, and the URL where the rest of the call is."""
        return f"{self.dialect.name} {self.route} {self.call.stream} {self.digest}"
