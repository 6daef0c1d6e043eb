"""How long `replay list` and the pages of `replay view` take at 10,000 sessions, against 100, and by which query plans.

    python -m tests.bench.session_list [--sessions 10000]

Two SQLite stores are recorded, of sessions of three turns each. Pages are asked of the real application in this
process, the median of five; beneath stands each query they make, with its plan. SQLite says SCAN both for a walk over
all rows and for one that a LIMIT stops, so each query is run on both stores and the steps of SQLite's virtual machine
are counted: what scans a table whole takes many more of them in the larger store.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp.test_utils import TestClient, TestServer
from sqlalchemy import event

from replay.reader import Reader
from replay.store import Store
from replay.view.server import application
from tests.bench.many_sessions.record import fill

SMALL = 100
REPEATS = 5
GROWS = 5
"""Times the steps: a query that takes fewer does not depend on how much there is."""
LIMIT = 50
TOKEN = "bench"
FILTERS: tuple[Mapping[str, Any], ...] = (
    {"harness": "codex", "status": "done"},
    {"group": "group-3"},
    {"purpose": "title"},  # one session in a hundred has such a call
    {"weight_version": "0"},  # the oldest twentieth: all newer sessions are passed over
    {"reward_min": 2.0},  # none: all sessions are passed over
    {"text": "needle"},  # in one session
    {"text": "pytest"},  # in every message
    {"text": "pytest", "status": "failed"},  # in every message, of no session that has this status
)
_SCAN = re.compile(r"\b(?:SCAN|SEARCH(?= \w+$)) (session|turn)(_\d+)?\b")  # SEARCH by nothing is for a min or max
_COLUMNS = re.compile(r"(?:\w+\.\w+(?: AS \w+)?, ){4,}")

Query = tuple[str, tuple[Any, ...]]
"""SQL and its parameters, as the driver gets them."""


@dataclass
class Measured:
    """Of one page: seconds, and the queries it made in this process."""

    seconds: float
    queries: list[Query]


async def measure(store: Store, path: Path, sessions: int) -> dict[str, Measured]:
    """Every page, by its name."""
    reader = Reader(store)
    with asked(store) as queries:
        async with TestClient(TestServer(application(store, TOKEN))) as client:
            await client.get("/sessions", params={"token": TOKEN})  # for the cookie
            pages = {
                **{f"`Reader.sessions`{named(one)}": listed(reader, one) for one in ({}, *FILTERS[-3:])},
                "`replay list`": commanded(path),
                "`replay list needle`": commanded(path, "needle"),
                **{f"/sessions?{urlencode(one)}".rstrip("?"): got(client, one) for one in ({}, *FILTERS)},
                "/sessions, from the middle on": got(client, {"before": sessions // 2}),
                "/sessions, unchanged (304)": await unchanged(client),
                "/groups": got(client, {}, "/groups"),
                "/sessions/ID": got(client, {}, f"/sessions/{sessions // 2}"),
            }
            found = {}
            for name, ask in pages.items():
                await ask()  # what is loaded once is not counted
                queries.clear()
                await ask()
                made, seconds = list(queries), []
                for _ in range(REPEATS):
                    start = time.perf_counter()
                    await ask()
                    seconds.append(time.perf_counter() - start)
                found[name] = Measured(statistics.median(seconds), made)
    return found


@contextmanager
def asked(store: Store) -> Iterator[list[Query]]:
    """The queries that the store is asked meanwhile, as they come."""
    queries: list[Query] = []

    def note(_: Any, __: Any, statement: str, parameters: tuple[Any, ...], *___: Any) -> None:
        if statement.startswith("SELECT"):  # not BEGIN
            queries.append((statement, parameters))

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        yield queries
    finally:
        event.remove(store.engine, "before_cursor_execute", note)


def listed(reader: Reader, filters: Mapping[str, Any]) -> Callable[[], Awaitable[None]]:
    """What `replay list` asks the library."""

    async def ask() -> None:
        reader.overview(reader.sessions(**filters, limit=LIMIT))

    return ask


def commanded(path: Path, *arguments: str) -> Callable[[], Awaitable[None]]:
    """The command, as a process of its own."""
    command = [str(Path(sys.executable).with_name("replay")), "list", *arguments, "--store", f"sqlite:///{path}"]

    async def ask() -> None:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        if await process.wait():
            raise subprocess.CalledProcessError(process.returncode or 0, command)

    return ask


def got(
    client: TestClient[Any, Any], query: Mapping[str, Any], path: str = "/sessions"
) -> Callable[[], Awaitable[None]]:
    """A page, to its last byte."""

    async def ask() -> None:
        async with client.get(path, params=query) as answer:
            answer.raise_for_status()
            await answer.read()

    return ask


async def unchanged(client: TestClient[Any, Any]) -> Callable[[], Awaitable[None]]:
    """What an open page asks every two seconds."""
    async with client.get("/sessions") as answer:
        version = answer.headers["ETag"]

    async def ask() -> None:
        async with client.get("/sessions", headers={"If-None-Match": version}) as again:
            if again.status != 304:
                raise ValueError(f"an unchanged page was answered with {again.status}")

    return ask


def named(filters: Mapping[str, Any]) -> str:
    """Filters, for a person."""
    return " " + ", ".join(f"{name}={value}" for name, value in filters.items()) if filters else ""


def plan(connection: sqlite3.Connection, query: Query) -> list[str]:
    """The steps of SQLite's plan, each indented beneath the one it belongs to."""
    depth = {0: 0}
    lines = []
    for step, parent, _, detail in connection.execute(f"EXPLAIN QUERY PLAN {query[0]}", query[1]):
        depth[step] = depth[parent] + 1
        lines.append("    " * depth[parent] + detail)
    return lines


def steps(connection: sqlite3.Connection, query: Query) -> int:
    """How many instructions SQLite's virtual machine runs for it."""
    count = 0

    def more() -> int:
        nonlocal count
        count += 1
        return 0

    connection.set_progress_handler(more, 1)
    connection.execute(*query).fetchall()
    connection.set_progress_handler(None, 1)
    return count


def verdict(lines: Sequence[str], small: int, large: int) -> str:
    """Whether a step of the plan walks over all sessions or turns."""
    counted = f"{small:,} steps at {SMALL} sessions, {large:,} here"
    if large < GROWS * small:
        return f"no whole scan: it does not grow with the store ({counted})"
    tables = sorted({f"`{match[1]}`" for line in lines if (match := _SCAN.search(line))})
    if tables:
        return f"**scans {', '.join(tables)} whole** ({counted})"
    return f"no whole scan of `session` or `turn`; it grows with what an index finds ({counted})"


def report(measured: Sequence[dict[str, Measured]], paths: Sequence[Path], sessions: int) -> Iterator[str]:
    """Lines of Markdown; the small store comes first."""
    small, large = measured
    yield f"| page | ms at {sessions:,} sessions | ratio to {SMALL} |"
    yield "|---|--:|--:|"
    for name, one in large.items():
        yield f"| {name} | {one.seconds * 1000:,.1f} | {one.seconds / small[name].seconds:.2f} |"
    seen: set[str] = set()
    with closing(sqlite3.connect(paths[0])) as few, closing(sqlite3.connect(paths[1])) as many:
        for name, one in large.items():
            for query, at_small in zip(one.queries, small[name].queries, strict=False):
                if query[0] in seen:
                    continue
                seen.add(query[0])
                lines = plan(many, query)
                yield f"\n{name}: {verdict(lines, steps(few, at_small), steps(many, query))}\n"
                yield f"    {_COLUMNS.sub('…, ', ' '.join(query[0].split()))}"
                yield from (f"    |   {line}" for line in lines)


def main(folder: Path, sessions: int) -> None:
    """Record both stores, measure, print."""
    measured, paths = [], []
    for count in (SMALL, sessions):
        path = folder / f"{count}.db"
        with Store.open(f"sqlite:///{path}") as store:
            start, cpu = time.perf_counter(), time.process_time()
            fill(store, count)
            took, cpu = time.perf_counter() - start, time.process_time() - cpu
            print(f"{count:,} sessions recorded in {took:.0f} s, {cpu:.0f} s of them CPU", file=sys.stderr)
            measured.append(asyncio.run(measure(store, path, count)))
        paths.append(path)
    print("\n".join(report(measured, paths, sessions)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=10_000, help="of the larger store")
    with tempfile.TemporaryDirectory() as made:
        main(Path(made), parser.parse_args().sessions)
