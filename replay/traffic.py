"""What a session sent beside its model calls: hosts, connections and bytes, in its metadata under `egress`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select, update

from replay.operations import Prepared, prepare_session
from replay.records import NewSession
from replay.schema import Session


def prepare_traffic(session: str, host: str, *, sent: int, received: int, at: float) -> Prepared[None]:
    """Add one connection to `host` and its bytes to what is known of the session, which is opened if there is none."""
    opening = prepare_session(NewSession(name=session), at)

    def apply(connection: Connection) -> None:
        session_id = opening.apply(connection)
        metadata = connection.execute(select(Session.meta).where(Session.id == session_id)).scalar() or {}
        egress: dict[str, Any] = dict(metadata.get("egress") or {})
        known = egress.get(host) or {"connections": 0, "sent": 0, "received": 0}
        egress[host] = {
            "connections": known["connections"] + 1, "sent": known["sent"] + sent,
            "received": known["received"] + received,
        }  # fmt: skip
        changed = {**metadata, "egress": egress}
        connection.execute(update(Session).where(Session.id == session_id).values(meta=changed))

    return Prepared({}, apply)
