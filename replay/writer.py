"""The recorder: any thread submits, one thread writes, many writes share one commit.

Theory of operation. Every call puts an operation on a queue and gives a Future. The writer thread takes all
that is queued and

1. prepares each operation outside the transaction (encoding, hashing);
2. opens ONE transaction, inserts the blobs it has not seen committed before and indexes such messages, and applies
   each operation in a savepoint of its own;
3. commits, and only then resolves the Futures.

While it commits, more operations queue up: so the dearer a commit (fsync), the more share it. An operation
that fails is rolled back to its savepoint and fails its own Future; a commit that fails, fails all of that
commit. A resolved Future means: it is on disk. Cancelling one does nothing: a harness that hangs up must
not undo the record of what was sampled for it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self, get_args

from sqlalchemy import Connection

from replay import operations, owners, search, traffic
from replay.operations import ItemCache, Prepared
from replay.owners import Owner
from replay.records import NewBatch, NewSession, NewTurn, Purpose, SessionStatus, TurnEnd, check_reward
from replay.store import Store

MAX_GROUP = 512
"""Operations a commit."""
_KNOWN_BLOBS = 100_000


@dataclass(frozen=True, slots=True)
class _Submitted:
    prepare: Callable[[], Prepared[Any]]
    future: Future[Any]


class Recorder:
    """Writes sessions and turns; thread-safe. Use it as a context manager, or `close` it.

    All methods give a `concurrent.futures.Future`; from asyncio await `asyncio.wrap_future(...)`. They fail
    with ValueError or LookupError for what contradicts the database, with SQLAlchemy's errors when it cannot
    write.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[_Submitted | None] = queue.SimpleQueue()
        self._known: OrderedDict[str, None] = OrderedDict()  # blobs that are committed
        self._indexed: OrderedDict[str, None] = OrderedDict()  # messages that can be searched for
        self._items = ItemCache()
        self._lock = threading.Lock()
        self._closed = False
        self._owner: Owner | None = None
        self.commits = 0
        """Transactions committed so far."""
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def open_session(self, new: NewSession) -> Future[int]:
        """Make the session, or fill what is still unknown of the one with that name; its id."""
        at = time.time()
        return self._submit(lambda: operations.prepare_session(new, at))

    def open_turn(self, new: NewTurn) -> Future[int]:
        """Record a call as `open`, before the engine is asked; the turn's id."""
        with self._lock:
            owner = self._owner = self._owner or owners.take(self._store)
        return self._submit(lambda: operations.prepare_turn(new, self._items, owner.name))

    def sweep(self) -> Future[int]:
        """Abort the turns that processes left open which are gone now (killed, say); how many they were."""
        at = time.time()
        return self._submit(lambda: operations.prepare_sweep(lambda name: owners.is_gone(self._store, name), at))

    def set_aside(self, turn_id: int, purpose: Purpose) -> Future[None]:
        """Record that a root, which passed for the agent's, was a side call, once later calls tell."""
        if purpose not in get_args(Purpose):
            raise ValueError(f"purpose {purpose!r} is none of {', '.join(get_args(Purpose))}")
        return self._submit(lambda: operations.prepare_aside(turn_id, purpose))

    def finish_turn(self, turn_id: int, end: TurnEnd) -> Future[None]:
        """Record how a call ended. Wait for it before the terminal event leaves."""
        return self._submit(lambda: operations.prepare_end(turn_id, end))

    def mark_delivered(self, turn_id: int, at: float) -> Future[None]:
        """Record that the harness took the terminal event, at time `at`."""
        return self._submit(lambda: operations.prepare_delivered(turn_id, at))

    def add_traffic(self, session: str, host: str, *, sent: int, received: int) -> Future[None]:
        """Add a connection to `host` beside the model calls, and its bytes, to the session's metadata."""
        at = time.time()
        return self._submit(lambda: traffic.prepare_traffic(session, host, sent=sent, received=received, at=at))

    def score(
        self,
        session_name: str,
        reward: float | None,
        parts: Mapping[str, float] | None = None,
        status: SessionStatus | None = None,
    ) -> Future[None]:
        """Set the reward (None: not judged, which is not 0) and its parts; and the status, when given.

        The Future fails with LookupError when there is no such session.
        """
        check_reward(reward, parts)
        if status is not None and status not in get_args(SessionStatus):
            raise ValueError(f"status {status!r} is none of {', '.join(get_args(SessionStatus))}")
        return self._submit(lambda: operations.prepare_score(session_name, reward, parts, status))

    def record_batch(self, new: NewBatch) -> Future[int]:
        """Record what a training step was made of; the batch's id. Its sessions' groups are consumed."""
        return self._submit(lambda: operations.prepare_batch(new))

    def close(self) -> None:
        """Write all that was submitted, then stop. Later calls raise RuntimeError."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()
        with self._lock:
            if self._owner is not None:
                self._owner.release()
                self._owner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit[T](self, prepare: Callable[[], Prepared[T]]) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # from here on it cannot be cancelled
        with self._lock:
            if self._closed:
                raise RuntimeError("the recorder is closed")
            self._queue.put(_Submitted(prepare, future))
        return future

    def _run(self) -> None:
        while True:
            group, last = self._take()
            if group:
                self._write(group)
            if last:
                return

    def _take(self) -> tuple[list[_Submitted], bool]:
        """Wait for an operation, then take all that is there; and whether it was the last."""
        group: list[_Submitted] = []
        item = self._queue.get()
        while item is not None:
            group.append(item)
            if len(group) >= MAX_GROUP:
                return group, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _write(self, group: list[_Submitted]) -> None:
        ready: list[tuple[Future[Any], Prepared[Any]]] = []
        for submitted in group:
            try:
                ready.append((submitted.future, submitted.prepare()))
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to whoever waits
                submitted.future.set_exception(error)
        fresh = {key: text for _, prepared in ready for key, text in prepared.blobs.items() if key not in self._known}
        try:
            rows = operations.blob_rows(fresh)
            words = {
                key: search.words(message)
                for _, prepared in ready
                for key, message in prepared.messages.items()
                if key not in self._indexed
            }
            with self._store.write() as connection:
                operations.store_blobs(connection, rows)
                search.store(connection, words)
                outcomes = [(future, _apply(connection, prepared)) for future, prepared in ready]
        except Exception as error:  # noqa: BLE001 - the thread must live on for the next group
            for future, _ in ready:
                future.set_exception(error)
            return
        self.commits += 1
        self._remember(ready)
        for future, outcome in outcomes:
            if isinstance(outcome, _Failed):
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome)

    def _remember(self, ready: list[tuple[Future[Any], Prepared[Any]]]) -> None:
        for _, prepared in ready:
            for keys, known in ((prepared.blobs, self._known), (prepared.messages, self._indexed)):
                for key in keys:
                    known[key] = None
                    known.move_to_end(key)
        for known in (self._known, self._indexed):
            while len(known) > _KNOWN_BLOBS:
                known.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


def _apply(connection: Connection, prepared: Prepared[Any]) -> Any:
    """The operation's result, or its failure, undone."""
    try:
        with connection.begin_nested():
            return prepared.apply(connection)
    except Exception as error:  # belongs to one Future; the others' writes go on
        if connection.invalidated or not connection.in_transaction():
            raise
        return _Failed(error)
