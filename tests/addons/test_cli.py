from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from addons.cli import app
from addons.intercept import Intercept
from addons.matrix.row import Row
from addons.matrix.run import Options
from addons.providers import provider_hosts
from certs import ca, harnesses, keys
from certs.environment import harness_environment, proxy_url
from certs.harnesses import Harness
from replay.reader import Reader
from replay.store import Store
from tests.conftest import TINY

TAP = [sys.executable, "-c", "from addons.cli import app; app()"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh home, a fresh working directory, and none of the developer's own settings."""
    for name in ("HARNESSTAP_STORE", "HARNESSTAP_ENGINE", "HARNESSTAP_MODEL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARNESSTAP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture
def port() -> Iterator[int]:
    """Of something that listens, as a proxy would."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def tap(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command run in this process (never `tap run`, which would replace it)."""
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def spawn(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """A command as its own process, which `tap run` replaces."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run([*TAP, *arguments], capture_output=True, text=True, check=False, env=environ, **more)


def print_variable(name: str) -> list[str]:
    return [sys.executable, "-c", f"import os; print(os.environ.get({name!r}))"]


def test_certs_says_where_and_what(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addons.commands.certs.out", Console(width=500))  # pytest's workers have COLUMNS=80
    code, out, _ = tap("certs", "--provider", "llm.example.com=chat")
    authority = ca.load(home)
    assert code == 0
    assert authority.fingerprint in out
    assert str(authority.bundle) in out
    assert "made" in out
    assert "llm.example.com" in authority.hosts
    assert "llm.example.com" in out
    assert "kept" in tap("certs", "--provider", "llm.example.com=chat")[1]
    assert "re-signed" in tap("certs")[1]
    assert ca.load(home).hosts == tuple(provider_hosts())
    assert "made" in tap("certs", "--renew")[1]


def test_certs_names_what_is_wrong(home: Path) -> None:
    code, _, err = tap("certs", "--provider", "llm.example.com=chats")
    assert code == 1
    assert "'llm.example.com=chats'" in err
    tap("certs")
    (home / "certs" / "mitmproxy-ca.pem").write_text("junk")
    code, _, err = tap("certs")
    assert code == 1
    assert "mitmproxy-ca.pem is damaged" in err


def expected(home: Path, session: str, port: int = 8080, host: str = "127.0.0.1") -> dict[str, str]:
    url = proxy_url(host, port, session, keys.session_key(home, session))
    return harness_environment(url, home / "certs" / "bundle.pem")


def test_env_json(home: Path) -> None:
    code, out, _ = tap("env", "--session", "try-1", "--shell", "json", "--port", "9090", "--host", "gpu-7")
    assert code == 0
    assert json.loads(out) == expected(home, "try-1", 9090, "gpu-7")


@pytest.mark.parametrize("shell", ["sh", "fish"])
def test_env_is_read_back_by_the_shell(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on PATH")
    odd = tmp_path / 'it\'s a $HOME \\ "home"'
    monkeypatch.setenv("HARNESSTAP_HOME", str(odd))
    _, out, _ = tap("env", "--session", "me@try", "--shell", shell)
    show = shlex.join([sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"])
    done = subprocess.run([shell], input=f"{out}\n{show}\n", capture_output=True, text=True, check=True)
    assert expected(odd, "me@try").items() <= json.loads(done.stdout).items()


def test_fish_quoting() -> None:
    from addons.commands.env import fish

    assert fish("it's \\ $HOME") == r"'it\'s \\ $HOME'"


def test_env_leaves_the_hosts_as_they_are(home: Path) -> None:
    """The proxy was started with one more provider; whoever uses it must not take that away."""
    tap("certs", "--provider", "llm.example.com=chat")
    before = ca.load(home).fingerprint
    tap("env", "--session", "try-1")
    assert ca.load(home).fingerprint == before


def test_env_refuses_a_name_that_no_url_carries(home: Path) -> None:
    code, _, err = tap("env", "--session", "try:1")
    assert code == 1
    assert "'try:1' cannot name a session" in err


def test_run_passes_exit_code_arguments_and_environment(home: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os, sys; print(sys.argv[1:], os.environ['HTTPS_PROXY'], os.environ['KEPT']); sys.exit(7)"
    command = [sys.executable, "-c", script, "-p", "a  b", "--session", "x"]
    monkeypatch.setenv("KEPT", "mine")
    done = spawn("run", "--session", "try-1", "--port", str(port), "--", *command)
    proxy = expected(home, "try-1", port)["HTTPS_PROXY"]
    assert done.returncode == 7
    assert done.stdout == f"['-p', 'a  b', '--session', 'x'] {proxy} mine\n"
    assert done.stderr == ""


def test_run_works_without_the_two_dashes(home: Path, port: int) -> None:
    done = spawn("run", "--session", "try-1", "--port", str(port), sys.executable, "-c", "print('--help')", "--help")
    assert done.stdout == "--help\n"


def test_run_makes_a_name_up(home: Path, port: int) -> None:
    done = spawn("run", "--port", str(port), *print_variable("HTTPS_PROXY"))
    found = re.fullmatch(r"tap: session (python[\w.]*-\d{8}-\d{6}-[0-9a-f]{4})\n", done.stderr)
    assert found
    assert done.stdout.startswith(f"http://{found[1]}:")


def test_run_is_the_command(home: Path, port: int) -> None:
    """Same process: a signal to `tap run` is a signal to the harness."""
    script = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); signal.pause()"
    done = spawn("run", "--session", "s", "--port", str(port), sys.executable, "-c", script, timeout=60)
    assert done.returncode == -signal.SIGTERM


def test_run_without_a_proxy_says_what_to_start(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    done = spawn("run", "--port", str(closed), "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert f"no proxy listens on 127.0.0.1:{closed}" in done.stderr
    assert f"tap up --port {closed}" in done.stderr


def test_run_of_what_cannot_run(home: Path, port: int, tmp_path: Path) -> None:
    done = spawn("run", "--port", str(port), "--", "no-such-harness")
    assert (done.returncode, "no-such-harness: no such command" in done.stderr) == (127, True)
    (tmp_path / "plain").write_text("")
    done = spawn("run", "--port", str(port), "--", str(tmp_path / "plain"))
    assert (done.returncode, "Permission denied" in done.stderr) == (126, True)


def test_dummy_keys_only_when_asked(home: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ["run", "--session", "s", "--port", str(port)]
    show = print_variable("OPENAI_API_KEY")
    assert spawn(*where, "--", *show).stdout == "None\n"
    assert spawn(*where, "--dummy-key", "OPENAI_API_KEY", "--", *show).stdout == "harnesstap-dummy\n"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    assert spawn(*where, "--dummy-key", "OPENAI_API_KEY", "--", *show).stdout == "sk-mine\n"


def test_task_and_group_go_into_the_record(home: Path, port: int) -> None:
    Store.open("sqlite:///rl.db").close()  # as `tap up` does
    named = ["--session", "try-1", "--task", "hello", "--group", "g-1", "--store", "sqlite:///rl.db"]
    assert spawn("run", "--port", str(port), *named, "--", "true").returncode == 0
    assert tap("env", *named)[0] == 0
    with Store.open("sqlite:///rl.db", create=False) as store:
        [row] = Reader(store).sessions()
    assert (row.name, row.task, row.group, row.status) == ("try-1", "hello", "g-1", "open")


def test_task_needs_the_record_of_the_proxy(home: Path, port: int) -> None:
    """No stray database in whatever folder the harness is started from."""
    done = spawn("run", "--port", str(port), "--task", "hello", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert "--store" in done.stderr
    assert not list(Path.cwd().iterdir())


def test_run_and_env_touch_no_record_unasked(home: Path, port: int) -> None:
    assert spawn("run", "--port", str(port), "--", "true").returncode == 0
    assert tap("env", "--session", "s")[0] == 0
    assert not list(Path.cwd().iterdir())


class Declared:
    """Stands in for mitmproxy's loader: the options of the addon."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.master = SimpleNamespace(options=SimpleNamespace(process_deferred=lambda: None))

    def add_option(self, name: str, typespec: type, default: object, help: str, choices: object = None) -> None:
        self.options[name] = (typespec, choices)


def test_up_becomes_mitmdump_with_our_options(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, argv: executed.append(argv))
    code, _, err = tap(
        "up", "--listen", "0.0.0.0", "--port", "9090", "--engine", "http://gpu-7:8000",
        "--model", str(TINY), "--parser", "hermes", "--store", "sqlite:///rl.db", "--keys", "required",
        "--egress", "tunnel", "--provider", "llm.example.com=chat",
        "--provider", "x.example.com/v1=chat+responses", "--", "--verbose",
    )  # fmt: skip
    assert code == 0, err
    [[python, _, start, *arguments]] = executed
    assert python == sys.executable
    assert "mitmdump" in start
    assert arguments[:4] == ["--listen-host", "0.0.0.0", "--listen-port", "9090"]
    assert arguments[4] == "-s"
    assert Path(arguments[5]).name == "intercept.py"
    assert arguments[-1] == "--verbose"
    settings = dict(a.split("=", 1) for flag, a in pairwise(arguments) if flag == "--set")
    assert settings == {
        "confdir": str(home / "certs"),
        "connection_strategy": "lazy",
        "tap_home": str(home),
        "tap_engine": "http://gpu-7:8000",
        "tap_model": str(TINY),
        "tap_store": "sqlite:///rl.db",
        "tap_keys": "required",
        "tap_providers": "llm.example.com=chat,x.example.com/v1=chat+responses",
        "tap_parser": "hermes",
        "tap_egress": "tunnel",
        "tap_sampling": "asked",
        "tap_reasoning": "keep",
        "tap_images": "placeholder",
        "tap_max_tokens": "0",
        "tap_allow": "",
        "tap_session_ports": "",
    }
    assert {"llm.example.com", "x.example.com"} <= set(ca.load(home).hosts)
    declared = Declared()
    Intercept().load(declared)  # type: ignore[arg-type]
    assert {name for name in settings if name.startswith("tap_")} <= set(declared.options)
    for name, value in settings.items():
        choices = declared.options.get(name, (str, None))[1]
        assert choices is None or value in choices


def test_up_names_a_provider_that_is_not_understood(home: Path) -> None:
    code, _, err = tap("up", "--provider", "nonsense")
    assert code == 1
    assert "'nonsense'" in err


@pytest.mark.parametrize("command", ["certs", "env", "run", "up", "matrix", "harness install"])
def test_help_teaches(home: Path, command: str) -> None:
    code, out, _ = tap(*command.split(), "--help")
    assert code == 0
    assert re.search(rf"^ .*tap {command} -", out, re.MULTILINE), out


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A root where `pi` is installed: a program that tells how it was started."""
    program = tmp_path / "harnesses" / "pi" / "bin" / "pi"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))")
    program.chmod(0o755)
    pi = harnesses.get("pi")
    stamp = f"npm:{pi.package} {pi.version} with node {pi.node}"
    (program.parents[1] / "harnesstap-installed").write_text(stamp)
    return tmp_path / "harnesses"


def test_run_by_name_starts_it_as_the_table_says(home: Path, port: int, installed: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tap.db'}"
    Store.open(url).close()
    done = spawn("run", "--port", str(port), "--root", str(installed), "--store", url, "pi", "write it down")
    assert done.returncode == 0, done.stderr
    arguments, seen = json.loads(done.stdout)
    assert arguments == ["--model", "claude-opus-4-5", "-p", "write it down"]
    assert seen["PATH"].split(":")[0] == str(installed / "pi" / "bin")
    assert seen["ANTHROPIC_API_KEY"] == "dummy"
    with Store.open(url) as store:
        [row] = Reader(store).sessions()
    assert (row.harness, row.harness_version) == ("pi", harnesses.get("pi").version)
    assert f"http://{row.name}:" in seen["HTTPS_PROXY"]


def test_run_by_name_leaves_the_users_own_key(
    home: Path, port: int, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "my own")
    url = f"sqlite:///{tmp_path / 'tap.db'}"
    Store.open(url).close()
    done = spawn("run", "--port", str(port), "--root", str(installed), "--store", url, "pi", "write")
    assert json.loads(done.stdout)[1]["ANTHROPIC_API_KEY"] == "my own"


def test_run_by_name_says_what_is_not_installed(home: Path, port: int) -> None:
    done = spawn("run", "--port", str(port), "pi", "write")
    assert (done.returncode, done.stdout) == (125, "")
    assert "tap harness install pi" in done.stderr


def test_behind_dashes_a_name_is_a_command(
    home: Path, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`codex login` is no task of codex."""
    program = tmp_path / "codex"
    program.write_text('#!/bin/sh\necho "$@"')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done = spawn("run", "--port", str(port), "--", "codex", "login")
    assert (done.returncode, done.stdout) == (0, "login\n")


def test_harness_list(home: Path, installed: Path) -> None:
    code, out, _ = tap("harness", "list", "--root", str(installed))
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert set(harnesses.load()) <= set(lines)
    assert lines["pi"].rstrip().endswith("yes")
    assert not lines["codex"].rstrip().endswith("yes")


def test_harness_install_wants_names_or_all(home: Path) -> None:
    assert "--all" in tap("harness", "install")[2]
    assert "--all" in tap("harness", "install", "--all", "pi")[2]
    code, _, err = tap("harness", "install", "nini")
    assert (code, "no harness called 'nini'" in err) == (1, True)


def test_matrix_names_what_is_wrong_before_it_starts_anything(home: Path) -> None:
    code, _, err = tap("matrix", "nini")
    assert (code, "no harness called 'nini'" in err) == (1, True)
    Path("there").mkdir()
    code, _, err = tap("matrix", "pi", "--directory", "there")
    assert (code, "there exists: name a folder that does not" in err) == (1, True)


def test_a_red_row_is_exit_status_1_and_told_in_the_table(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No npm here: the harness cannot be installed."""
    monkeypatch.setenv("PATH", "")
    code, out, err = tap("matrix", "pi", "--directory", "run", "--root", "nothing", "--markdown", "table.md")
    assert code == 1, err
    assert "there is no npm on PATH" in out
    written = Path("table.md").read_text()
    assert written.startswith("0 of 1 harnesses green, ")
    assert "| **red**: pi is a package of npm" in written


def test_matrix_gives_mitmdump_what_follows_dashes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[list[str], tuple[str, ...]]] = []

    async def matrix(chosen: list[Harness], options: Options, tell: object) -> list[Row]:
        tried.append(([one.name for one in chosen], options.proxy_arguments))
        options.directory.mkdir()
        return []

    monkeypatch.setattr("addons.matrix.run.matrix", matrix)
    code, _, err = tap("matrix", "codex", "--directory", "run", "pi", "--", "--set", "tap_websocket=false")
    assert code == 0, err
    assert tried == [(["codex", "pi"], ("--set", "tap_websocket=false"))]
