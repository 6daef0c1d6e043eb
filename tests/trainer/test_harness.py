from __future__ import annotations

from pathlib import Path

import pytest

from trainer import harness
from trainer.harness import Harness, HarnessError

FAKE = Harness(
    name="fake", command=("pip", "download", "{task}"), package="no-such-package-for-harnesstap", version="1"
)


def test_the_shipped_list_is_sound() -> None:
    mini = harness.get("mini-swe-agent")
    assert mini.version == "2.4.6"
    argv = mini.argv("do {this}", Path("/x/mini"))
    assert argv == ["/x/mini", "-m", "openai/gpt-5.2", "-t", "do {this}", "-y", "--exit-immediately"]
    assert mini.env["OPENAI_API_KEY"] == "dummy"


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(HarnessError, match=r"no harness called 'nini'.*mini-swe-agent"):
        harness.get("nini")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a]\ncommand = ['x']", r"\{task\}"),
        ("[a]\nenv = {}", "needs a command"),
        ("[a]\ncommand = ['x', '{task}']\ncolour = 1", "unknown keys: colour"),
        ("a = ", "harness.toml"),
    ],
)
def test_a_bad_list_names_its_fault(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "harness.toml"
    path.write_text(text)
    with pytest.raises(HarnessError, match=fault):
        harness.load(path)


def test_environment_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the user's own")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://elsewhere")
    monkeypatch.setenv("PATH", "/usr/bin")
    mini = harness.get("mini-swe-agent")
    env = harness.environment(mini, program=Path("/h/bin/mini"), home=tmp_path, proxy={"HTTPS_PROXY": "p"})
    assert env["OPENAI_API_KEY"] == "dummy"
    assert "ANTHROPIC_BASE_URL" not in env
    assert env["PATH"] == "/h/bin:/usr/bin"
    assert (env["HOME"], env["HTTPS_PROXY"]) == (str(tmp_path), "p")


def test_find(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="trainer install fake"):
        harness.find(FAKE, tmp_path)
    program = tmp_path / "fake" / "bin" / "pip"
    program.parent.mkdir(parents=True)
    program.touch()
    assert harness.find(FAKE, tmp_path) == program
    assert harness.find(Harness(name="sh", command=("sh", "-c", "{task}")), tmp_path).name == "sh"


@pytest.mark.network
def test_install_and_not_again(tmp_path: Path) -> None:
    small = Harness(name="small", command=("dotenv", "{task}"), package="python-dotenv[cli]", version="1.1.0")
    said: list[str] = []
    program = harness.install(small, tmp_path, say=said.append, log=tmp_path / "log")
    assert program == tmp_path / "small" / "bin" / "dotenv"
    assert harness.install(small, tmp_path, say=said.append) == program
    assert len(said) == 1


@pytest.mark.network
def test_a_failed_install_says_what_failed(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"no-such-package-for-harnesstap==1` ended with status .*log"):
        harness.install(FAKE, tmp_path, log=tmp_path / "log")
