from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from certs import harnesses
from certs.harnesses import Harness, HarnessError, installer

FAKE = Harness(
    name="fake", command=("pip", "download", "{task}"), package="no-such-package-for-harnesstap", registry="pypi",
    version="1",
)  # fmt: skip
SIXTEEN = {
    "mini-swe-agent", "claude-code", "codex", "opencode", "pi", "gemini-cli", "qwen-code", "cline", "aider",
    "continue", "copilot", "vibe", "kimi", "hermes", "openhands", "kilo",
}  # fmt: skip


def test_the_shipped_table_is_sound() -> None:
    table = harnesses.load()
    assert set(table) == SIXTEEN
    for harness in table.values():
        assert all((harness.package, harness.version, harness.dialects)), harness.name
    mini = table["mini-swe-agent"]
    argv = mini.argv("do {this}", Path("/x/mini"))
    assert argv == ["/x/mini", "-m", "openai/gpt-5.2", "-t", "do {this}", "-y", "--exit-immediately"]
    assert mini.env["OPENAI_API_KEY"] == "dummy"


def test_no_harness_is_given_a_base_url_but_the_one_that_asks_for_it() -> None:
    """The point of the proxy: nothing is configured."""
    told = {h.name for h in harnesses.load().values() if any("BASE_URL" in name or "PROXY" in name for name in h.env)}
    assert told == {"copilot"}
    assert harnesses.get("copilot").env["COPILOT_PROVIDER_BASE_URL"] == "https://api.openai.com/v1"


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(HarnessError, match=r"no harness called 'nini'.*mini-swe-agent"):
        harnesses.get("nini")


PACKAGE = "[a]\ncommand = ['x', '{task}']\npackage = 'p'\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a]\ncommand = ['x']", r"\{task\}"),
        ("[a]\nenv = {}", "needs a command"),
        ("[a]\ncommand = ['x', '{task}']\ncolour = 1", "unknown keys: colour"),
        ("[a]\ncommand = ['x', '{task}']\nenv = 'A=1'", r"\[a\] env must be a table, not 'A=1'"),
        ("[a]\ncommand = ['x', '{task}']\nquirks = 'odd'", r"\[a\] quirks must be a list, not 'odd'"),
        ("[a]\ncommand = ['x', '{task}']\nnode = '26'", "without a package"),
        (PACKAGE, "package p needs a registry and a version"),
        (PACKAGE + "version = 1\nregistry = 'npm'", r"\[a\] version must be text, not 1"),
        (PACKAGE + "version = '1'\nregistry = 'cpan'", "registry 'cpan' is none of npm, pypi"),
        (PACKAGE + "version = '1'\nregistry = 'pypi'\nnode = '26'", "node is for packages of npm"),
        (PACKAGE + "version = '1'\nregistry = 'pypi'\ndialects = ['latin']", "unknown dialects: latin"),
        ("a = ", "table.toml"),
    ],
)
def test_a_bad_table_names_its_fault(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "table.toml"
    path.write_text(text)
    with pytest.raises(HarnessError, match=fault):
        harnesses.load(path)


def test_environment_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the user's own")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://elsewhere")
    monkeypatch.setenv("PATH", "/usr/bin")
    mini = harnesses.get("mini-swe-agent")
    env = harnesses.environment(mini, program=Path("/h/bin/mini"), home=tmp_path, proxy={"HTTPS_PROXY": "p"})
    assert env["OPENAI_API_KEY"] == "dummy"
    assert "ANTHROPIC_BASE_URL" not in env
    assert env["PATH"] == "/h/bin:/usr/bin"
    assert (env["HOME"], env["HTTPS_PROXY"]) == (str(tmp_path), "p")


def test_find(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="tap harness install fake"):
        harnesses.find(FAKE, tmp_path)
    program = tmp_path / "fake" / "bin" / "pip"
    program.parent.mkdir(parents=True)
    program.touch()
    with pytest.raises(HarnessError, match="not installed"):  # half-made: nobody stamped it
        harnesses.find(FAKE, tmp_path)
    stamp = tmp_path / "fake" / "harnesstap-installed"
    stamp.write_text("pypi:no-such-package-for-harnesstap 0")
    with pytest.raises(HarnessError, match=r"has pypi:no-such-package-for-harnesstap 0, not .* 1: run"):
        harnesses.find(FAKE, tmp_path)
    stamp.write_text("pypi:no-such-package-for-harnesstap 1")
    assert harnesses.find(FAKE, tmp_path) == program
    assert harnesses.find(Harness(name="sh", command=("sh", "-c", "{task}")), tmp_path).name == "sh"


def test_two_installers_at_once_install_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The half-made folder of a killed one is made anew, whatever is in it."""
    steps: list[list[str]] = []

    def pretend(argv: list[str], directory: Path, log: Path | None) -> None:
        steps.append(argv)
        assert not (directory / "half").exists()
        (directory / "bin").mkdir(parents=True, exist_ok=True)
        (directory / "bin" / "pip").touch()

    monkeypatch.setattr(installer, "_run", pretend)
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "half").touch()
    with ThreadPoolExecutor(4) as pool:
        programs = list(pool.map(lambda _: harnesses.install(FAKE, tmp_path), range(4)))
    assert set(programs) == {tmp_path / "fake" / "bin" / "pip"}
    assert len(steps) == 2  # the environment, and the package


def test_node_is_installed_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Under the Node that is there npm may pick an old release."""
    steps: list[list[str]] = []

    def pretend(argv: list[str], directory: Path, log: Path | None) -> None:
        steps.append(argv)
        (directory / "bin").mkdir(parents=True, exist_ok=True)
        (directory / "bin" / "pi").touch()

    monkeypatch.setattr(installer, "_run", pretend)
    pi = harnesses.get("pi")
    harnesses.install(pi, tmp_path)
    assert [step[-1] for step in steps] == [f"node@{pi.node}", f"{pi.package}@{pi.version}"]
    assert harnesses.find(pi, tmp_path) == tmp_path / "pi" / "bin" / "pi"


def test_what_a_harness_leaves_running_is_found_by_its_home(tmp_path: Path) -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("needs /proc")
    other = tmp_path / "home-2"
    processes = [
        subprocess.Popen([sys.executable, "-c", "input()"], env={"HOME": str(home)}, stdin=subprocess.PIPE)
        for home in (tmp_path / "home", other)
    ]
    try:
        assert harnesses.leftovers(tmp_path / "home") == [processes[0].pid]
    finally:
        for process in processes:
            process.communicate(b"\n")
    assert harnesses.leftovers(tmp_path / "home") == []


@pytest.mark.network
def test_install_and_not_again(tmp_path: Path) -> None:
    small = Harness(
        name="small", command=("dotenv", "{task}"), package="python-dotenv[cli]", registry="pypi", version="1.1.0"
    )
    said: list[str] = []
    program = harnesses.install(small, tmp_path, say=said.append, log=tmp_path / "log")
    assert program == tmp_path / "small" / "bin" / "dotenv"
    assert harnesses.install(small, tmp_path, say=said.append) == program
    assert len(said) == 1


@pytest.mark.network
def test_a_failed_install_says_what_failed(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"no-such-package-for-harnesstap==1` ended with status .*log"):
        harnesses.install(FAKE, tmp_path, log=tmp_path / "log")
    assert not (tmp_path / "fake" / "harnesstap-installed").exists()
