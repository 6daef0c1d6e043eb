"""A store on each database. PostgreSQL, where installed: a server of our own on a socket in a temporary folder."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner, Result

from replay.cli import app
from replay.reader import Reader
from replay.records import NewSession, NewTurn, TurnEnd
from replay.store import Store
from replay.writer import Recorder


def _postgres_programs() -> Path | None:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    return next(
        (p for p in [*installed, *([Path(on_path).parent] if on_path else [])] if (p / "pg_ctl").exists()),
        None,
    )


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Base URL of a running server, `postgresql+psycopg://user@/{database}?host=...`."""
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not installed (harnesstap[postgres])")
    programs = _postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed")
    user = None
    if os.geteuid() == 0:  # the server refuses to run as root
        try:
            user = pwd.getpwnam("nobody").pw_name
        except KeyError:
            pytest.skip("no unprivileged user to run PostgreSQL as")
    folder = Path(tempfile.mkdtemp(prefix="htap-pg-"))  # short: a socket's path has room for 107 bytes
    try:
        if user is not None:
            shutil.chown(folder, user)

        def run(program: str, *arguments: str) -> None:
            command = [programs / program, *arguments]
            subprocess.run(
                command, check=True, user=user, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )

        data = str(folder / "data")
        run("initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = f"-k {folder} -c listen_addresses= -c fsync=off"
        run("pg_ctl", "start", "-w", "-D", data, "-l", str(folder / "log"), "-o", settings)
        try:
            yield f"postgresql+psycopg://test@/{{database}}?host={folder}"
        finally:
            run("pg_ctl", "stop", "-D", data, "-m", "immediate")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/record.db"
        return
    server: str = request.getfixturevalue("postgres_server")
    database = f"t{uuid.uuid4().hex}"
    admin = create_engine(server.format(database="postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {database}"))
    yield server.format(database=database)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {database} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def recorder(store: Store) -> Iterator[Recorder]:
    with Recorder(store) as running:
        yield running


class Maker:
    """Small turns for tests, written by a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def new_turn(self, session_id: int, **changes: Any) -> NewTurn:
        """A root of three tokens, but for `changes`."""
        suffix: Sequence[int] = changes.get("prompt_suffix", (1, 2, 3))
        defaults: dict[str, Any] = {
            "purpose": "main",
            "dialect": "chat",
            "route": "/v1/chat/completions",
            "model": "gpt-5",
            "prompt_suffix": suffix,
            "prompt_length": len(suffix),
            "sampling_asked": {"temperature": 0.5},
            "sampling_sent": {"temperature": 0.5, "max_tokens": 8192},
            "template_hash": "t1",
            "weight_version": "v1",
            "received_at": time.time(),
            "body_digest": hashlib.sha256(b"body").hexdigest(),
            "request": {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]},
            "messages": [{"role": "user", "content": "hi"}],
            "drift_reason": None if changes.get("parent_id") else "first",
        }
        return NewTurn(session_id=session_id, **{**defaults, **changes})

    def end(self, sampled: Sequence[int] = (7, 8), **changes: Any) -> TurnEnd:
        """A complete reply, but for `changes`."""
        defaults: dict[str, Any] = {
            "status": "complete",
            "done_at": time.time(),
            "sampled": sampled,
            "logprobs": [-0.5] * len(sampled),
            "finish": "stop",
            "usage": {"prompt": 3, "completion": len(sampled)},
            "reply": {"role": "assistant", "content": "hello"},
        }
        return TurnEnd(**{**defaults, **changes})

    def session(self, name: str = "s", **known: Any) -> int:
        """Open a session and wait for its id."""
        return self.recorder.open_session(NewSession(name=name, **known)).result()

    def turn(self, session_id: int, ending: TurnEnd | None = None, **changes: Any) -> int:
        """Record a whole turn."""
        turn_id = self.recorder.open_turn(self.new_turn(session_id, **changes)).result()
        self.recorder.finish_turn(turn_id, ending or self.end()).result()
        return turn_id

    def conversation(self, session_id: int, length: int, **changes: Any) -> list[int]:
        """`length` turns of a harness that re-sends its history and adds one message each time."""
        history: list[Mapping[str, Any]] = []
        ids: list[int] = []
        before = 0
        for number in range(length):
            message = {"role": "user", "content": f"message {number} " + "x" * 200}
            history = [*history, message]
            suffix = [10 * number + offset for offset in range(10)]
            ids.append(
                self.turn(
                    session_id,
                    parent_id=ids[-1] if ids else None,
                    prompt_suffix=suffix,
                    prompt_length=before + len(suffix),
                    request={
                        "model": "gpt-5",
                        "messages": history,
                        "tools": [{"name": "bash", "about": "y" * 500}],
                    },
                    messages=[message],
                    body_digest=hashlib.sha256(str(number).encode()).hexdigest(),
                    **changes,
                )
            )
            before += len(suffix) + 2
            history = [*history, {"role": "assistant", "content": "hello"}]
        return ids


@pytest.fixture
def make_with() -> type[Maker]:
    """For a test with a recorder of its own."""
    return Maker


@pytest.fixture
def make(recorder: Recorder) -> Maker:
    return Maker(recorder)


@pytest.fixture
def reader(store: Store) -> Reader:
    return Reader(store)


@pytest.fixture
def replay(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command `replay` on the store, 200 columns wide; `code` is the exit code to expect."""
    monkeypatch.setenv("HARNESSTAP_STORE", url)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == code, result.output
        return result

    return run
