"""Reading the record: sessions, their turns, and what a turn was asked and answered, exactly.

Rows come back as detached `schema.Session` and `schema.Turn`; their bulk columns (ids, logprobs, items) are
not loaded with them: the methods here fetch those. A Reader may live as long as the store; what it caches
(ids of turns that ended) never changes.
"""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, exists, func, select
from sqlalchemy.orm import InstrumentedAttribute, undefer
from sqlalchemy.orm import Session as Transaction

from replay import bodies, codec, groups, search
from replay.groups import Group, Overview, chunks, complete_groups
from replay.operations import ItemCache
from replay.records import Purpose, SessionStatus
from replay.schema import Blob, Session, Turn, TurnMessage
from replay.store import Store

_CACHED_TURNS = 4096


class UnknownSession(LookupError):
    """No session has that name."""

    def __init__(self, name: str, near: Sequence[str]) -> None:
        hint = f"; near: {', '.join(near)}" if near else ""
        super().__init__(f"no session {name!r}{hint}")
        self.name = name
        self.near = tuple(near)


@dataclass(frozen=True, slots=True)
class _Piece:
    parent_id: int | None
    suffix: list[int]
    sampled: list[int]


class Reader:
    """Queries over a store. Not thread-safe: one for each thread."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._engine = store.engine
        self._items = ItemCache()
        self._pieces: OrderedDict[int, _Piece] = OrderedDict()

    def sessions(
        self,
        *,
        harness: str | None = None,
        harness_version: str | None = None,
        task: str | None = None,
        group: str | None = None,
        status: SessionStatus | None = None,
        reward_min: float | None = None,
        reward_max: float | None = None,
        purpose: Purpose | None = None,
        weight_version: str | None = None,
        text: str | None = None,
        prefix: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[Session]:
        """Sessions that match all filters, newest first. Reward bounds are inclusive and leave NULL out.

        `purpose` and `weight_version` want one turn that has it; `text` one message, see `replay.search.matching`.
        `before` wants an id less than that: what comes after a list that ended there.
        Raises ValueError when `text` names no word.
        """
        query = select(Session).order_by(Session.id.desc()).limit(limit)
        equal = {
            Session.harness: harness, Session.harness_version: harness_version, Session.task: task,
            Session.group: group, Session.status: status,
        }  # fmt: skip
        query = query.where(*(column == value for column, value in equal.items() if value is not None))
        if reward_min is not None:
            query = query.where(Session.reward >= reward_min)
        if reward_max is not None:
            query = query.where(Session.reward <= reward_max)
        if before is not None:
            query = query.where(Session.id < before)
        if prefix is not None:
            query = query.where(Session.name.startswith(prefix, autoescape=True))
        for column, value in ((Turn.purpose, purpose), (Turn.weight_version, weight_version)):
            if value is not None:
                query = query.where(exists().where(Turn.session_id == Session.id, column == value))
        if text is not None:
            brought = select(Turn.session_id).join(TurnMessage, TurnMessage.turn_id == Turn.id)
            query = query.where(Session.id.in_(brought.where(search.matching(self._engine.dialect.name, text))))
        with Transaction(self._engine) as transaction:
            return list(transaction.scalars(query))

    def overview(self, sessions: Sequence[Session]) -> list[Overview]:
        """The numbers of these sessions, in their order."""
        with Transaction(self._engine) as transaction:
            return groups.overview(transaction, sessions)

    def session(self, name: str) -> Session:
        """The session of that name. Raises UnknownSession, which knows names like it."""
        with Transaction(self._engine) as transaction:
            found = transaction.scalar(select(Session).where(Session.name == name))
            if found is None:
                names = transaction.scalars(select(Session.name).order_by(Session.id.desc()).limit(5000)).all()
                near = [one for one in names if one.startswith(name)] if name else []
                near += [one for one in difflib.get_close_matches(name, names, n=3, cutoff=0.5) if one not in near]
                raise UnknownSession(name, near[:3])
        return found

    def session_name(self, session_id: int) -> str:
        """The name of a session. Raises LookupError."""
        with Transaction(self._engine) as transaction:
            name = transaction.scalar(select(Session.name).where(Session.id == session_id))
        if name is None:
            raise LookupError(f"no session with id {session_id}")
        return name

    def turns(self, session: Session, *, tokens: bool = False) -> list[Turn]:
        """All turns of a session, in order of arrival; with `tokens` their own ids and logprobs are loaded too."""
        query = select(Turn).where(Turn.session_id == session.id).order_by(Turn.id)
        if tokens:
            query = query.options(undefer(Turn.prompt_suffix), undefer(Turn.sampled), undefer(Turn.logprobs))
        return self._turns(query)

    def turn(self, turn_id: int) -> Turn:
        """One turn. Raises LookupError."""
        found = self._turns(select(Turn).where(Turn.id == turn_id))
        if not found:
            raise LookupError(f"no turn {turn_id}")
        return found[0]

    def turns_by_body(self, session: Session, body_digest: str) -> list[Turn]:
        """Turns whose raw body was the same, oldest first: a call and its retries."""
        where = (Turn.session_id == session.id, Turn.body_digest == body_digest)
        return self._turns(select(Turn).where(*where).order_by(Turn.id))

    def path(self, turn: Turn) -> list[Turn]:
        """From the root to this turn."""
        turns = {one.id: one for one in self._turns(select(Turn).where(Turn.session_id == turn.session_id))}
        path = [turn]
        while (parent_id := path[-1].parent_id) is not None:
            path.append(turns[parent_id])
        return path[::-1]

    def branches(self, session: Session) -> dict[int, list[str]]:
        """Sessions that were answered from this one, by the last of its turns that each was answered from."""
        own = select(Turn.id).where(Turn.session_id == session.id)
        last = func.max(Turn.replays)
        query = select(Session.name, last).join(Turn, Turn.session_id == Session.id).where(Turn.replays.in_(own))
        found: dict[int, list[str]] = {}
        with self._engine.connect() as connection:
            for name, turn_id in connection.execute(query.group_by(Session.id, Session.name).order_by(Session.id)):
                if turn_id is not None:
                    found.setdefault(turn_id, []).append(name)
        return found

    def turn_by_reply(self, reply_id: str) -> Turn | None:
        """The turn whose reply carried this id, the newest should there be several; None when there is none."""
        found = self._turns(select(Turn).where(Turn.reply_id == reply_id).order_by(Turn.id.desc()).limit(1))
        return found[0] if found else None

    def prompt_ids(self, turn: Turn | int) -> list[int]:
        """The whole prompt (int32 ids) as the engine got it; `turn.prompt_length` of them."""
        pieces = [self._piece(_id(turn))]
        while (parent_id := pieces[-1].parent_id) is not None:
            pieces.append(self._piece(parent_id))
        ids: list[int] = []
        for piece in reversed(pieces[1:]):
            ids += piece.suffix
            ids += piece.sampled
        return ids + pieces[0].suffix

    def images(self, turn: Turn) -> list[dict[str, Any]]:
        """The images in the whole prompt, in order: sha256, media_type, and offset and length of their ids."""
        return [image for one in self.path(turn) for image in one.images or ()]

    def image(self, sha256: str) -> bytes:
        """The file of an image, as the harness sent it. Raises LookupError."""
        return self._texts([sha256])[sha256]

    def sampled(self, turn: Turn | int) -> tuple[list[int], list[float]]:
        """The sampled ids and their logprobs; both empty for a turn that is open or sampled nothing."""
        row = self._row(turn, Turn.sampled, Turn.logprobs)
        return row.sampled or [], row.logprobs or []

    def new_messages(self, turn: Turn | int) -> list[dict[str, Any]]:
        """Neutral messages of this turn that came after the parent's reply; all of them for a root."""
        return self._blobs(self._row(turn, Turn.messages).messages)

    def tools(self, turn: Turn) -> list[dict[str, Any]]:
        """The tools the turn offered, neutral: name, description, parameters; empty when it offered none."""
        found: list[dict[str, Any]] = [] if turn.tools is None else self._blobs([turn.tools])[0]
        return found

    def reply(self, turn: Turn | int) -> dict[str, Any] | None:
        """The neutral message that was sampled."""
        digest = self._row(turn, Turn.reply).reply
        return None if digest is None else self._blobs([digest])[0]

    def messages(self, turn: Turn) -> list[dict[str, Any]]:
        """The neutral history the turn was asked to continue; on a path, replies are ours, as sampled."""
        history: list[dict[str, Any]] = []
        path = self.path(turn)
        said = self.said(path)
        for one in path:
            new, reply = said[one.id]
            history += new
            if one.id != turn.id and reply is not None:
                history.append(reply)
        return history

    def said(self, turns: Sequence[Turn]) -> dict[int, tuple[list[dict[str, Any]], dict[str, Any] | None]]:
        """The new messages and the reply of each turn, by id: many turns at once."""
        names: dict[int, tuple[list[str], str | None]] = {}
        with self._engine.connect() as connection:
            for chunk in chunks([turn.id for turn in turns]):
                query = select(Turn.id, Turn.messages, Turn.reply).where(Turn.id.in_(chunk))
                names |= {row.id: (row.messages, row.reply) for row in connection.execute(query)}
        wanted = [name for new, reply in names.values() for name in (*new, reply) if name is not None]
        texts = self._texts(wanted)
        return {
            turn_id: ([codec.loads(texts[name]) for name in new], None if reply is None else codec.loads(texts[reply]))
            for turn_id, (new, reply) in names.items()
        }

    def request(self, turn: Turn) -> dict[str, Any]:
        """The parsed body as the harness sent it, key for key; only credentials read `[redacted]`."""
        with self._engine.connect() as connection:
            items = self._items.get(connection, turn.id)
        [skeleton] = self._blobs([turn.skeleton])
        return bodies.join(skeleton, items, self._blobs)

    def groups(
        self,
        *,
        min_size: int = 1,
        task: str | None = None,
        weight_versions: Sequence[str] | None = None,
        include_trained: bool = False,
        limit: int | None = None,
    ) -> list[Group]:
        """Complete groups, oldest first: at least `min_size` sessions, none open.

        `weight_versions` keeps groups whose every sampling turn began under one of these. A group with a
        session in a recorded batch is consumed, and left out unless `include_trained`. Rewards are not looked
        at.
        """
        with Transaction(self._engine) as transaction:
            return complete_groups(
                transaction,
                min_size=min_size,
                task=task,
                weight_versions=weight_versions,
                include_trained=include_trained,
                limit=limit,
            )

    def _turns(self, query: Select[Turn]) -> list[Turn]:
        with Transaction(self._engine) as transaction:
            return list(transaction.scalars(query))

    def _row(self, turn: Turn | int, *columns: InstrumentedAttribute[Any]) -> Row[Any]:
        with self._engine.connect() as connection:
            row = connection.execute(select(*columns).where(Turn.id == _id(turn))).one_or_none()
        if row is None:
            raise LookupError(f"no turn {_id(turn)}")
        return row

    def _piece(self, turn_id: int) -> _Piece:
        if turn_id in self._pieces:
            self._pieces.move_to_end(turn_id)
            return self._pieces[turn_id]
        # A turn is asked for with its ancestors: take the whole session's in one query.
        this = select(Turn.session_id).where(Turn.id == turn_id).scalar_subquery()
        query = select(Turn.id, Turn.parent_id, Turn.status, Turn.prompt_suffix, Turn.sampled)
        with self._engine.connect() as connection:
            rows = connection.execute(query.where(Turn.session_id == this, Turn.id <= turn_id)).all()
        pieces = {row.id: _Piece(row.parent_id, row.prompt_suffix, row.sampled or []) for row in rows}
        if turn_id not in pieces:
            raise LookupError(f"no turn {turn_id}")
        self._pieces |= {row.id: pieces[row.id] for row in rows if row.status != "open"}
        while len(self._pieces) > _CACHED_TURNS:
            self._pieces.popitem(last=False)
        return pieces[turn_id]

    def _blobs(self, digests: Sequence[str]) -> list[Any]:
        texts = self._texts(digests)
        return [codec.loads(texts[key]) for key in digests]

    def _texts(self, digests: Sequence[str]) -> dict[str, bytes]:
        texts: dict[str, bytes] = {}
        with self._engine.connect() as connection:
            for chunk in chunks(sorted(set(digests))):
                for row in connection.execute(select(Blob.sha256, Blob.data).where(Blob.sha256.in_(chunk))):
                    texts[row.sha256] = codec.decompress(row.data)
        missing = set(digests) - texts.keys()
        if missing:
            raise LookupError(f"the database lacks blob {min(missing)}")
        return texts


def _id(turn: Turn | int) -> int:
    return turn if isinstance(turn, int) else turn.id
