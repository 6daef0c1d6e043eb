"""The command line: what it says when something is missing, and a whole training step offline."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from replay.store import Store
from replay.writer import Recorder
from tests.trainer.recording import record_session, record_turn
from trainer import serve
from trainer.cli import app
from trainer.policy import load_policy, token_logprobs

RUNNER = CliRunner()


def fails(*arguments: str) -> str:
    """Run `trainer` with `arguments`; it must fail without a traceback. What it said."""
    result = RUNNER.invoke(app, list(arguments))
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'tap.db'}"
    Store.open(url).close()
    return url


@pytest.mark.parametrize(
    "command", ["", "serve", "rollout", "grpo", "push", "sft", "dpo", "eval", "rebuild", "check", "run"]
)
def test_help_shows_examples(command: str) -> None:
    result = RUNNER.invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"trainer {command or 'grpo'} " in result.output


def test_missing_things_are_named(tmp_path: Path, store: str, checkpoint: Path) -> None:
    assert "no checkpoint in /nowhere" in fails("serve", "/nowhere")
    assert "--host cannot be changed" in fails("serve", str(checkpoint), "--", "--host", "0.0.0.0")
    assert "no checkpoint in /nowhere" in fails("push", "/nowhere")
    assert "no database at" in fails("grpo", "--model", str(checkpoint), "--store", f"sqlite:///{tmp_path / 'no.db'}")
    down = fails("grpo", "--model", str(checkpoint), "--store", store, "--engine", "http://127.0.0.1:1")
    assert "no vLLM answers at http://127.0.0.1:1" in down
    assert "no sessions yet" in fails("grpo", "--no-push", "--model", str(checkpoint), "--store", store)


def test_rollout_needs_a_proxy(tmp_path: Path, store: str) -> None:
    task = tmp_path / "tasks" / "one"
    task.mkdir(parents=True)
    (task / "prompt.md").write_text("do")
    (task / "verify.sh").write_text("exit 0")
    arguments = ("rollout", str(tmp_path / "tasks"), "--store", store)
    assert "start `tap up`" in fails(*arguments, "--proxy", "127.0.0.1:1")
    assert "is not HOST:PORT" in fails(*arguments, "--proxy", "8080")
    assert "no task of" in fails(*arguments, "--task", "two")


def test_dev_mode_off_is_explained(store: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plain_vllm(self: httpx.Client, method: str, url: str, **_: object) -> httpx.Response:
        return httpx.Response(404, json={"detail": "Not Found"})

    monkeypatch.setattr(httpx.Client, "request", plain_vllm)
    told = fails("grpo", "--model", str(checkpoint), "--store", store)
    assert "VLLM_SERVER_DEV_MODE=1" in told
    assert "trainer serve" in told


def test_no_vllm_installed(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(serve, "distribution", nothing)
    assert "harnesstap[cpu]" in fails("serve", str(checkpoint))


def test_a_step_without_a_server(tmp_path: Path, store: str, checkpoint: Path) -> None:
    model = load_policy(checkpoint).model
    with Store.open(store) as opened, Recorder(opened) as recorder:
        for index, reward in enumerate((1.0, 0.0)):
            session = record_session(recorder, f"g.{index}", group="g", reward=reward)
            logprobs = token_logprobs(model, [5, 6, 7, 8, 9], 3)
            record_turn(recorder, session, [5, 6, 7], [8, 9], logprobs)
    out = tmp_path / "out"
    arguments = ["grpo", "--no-push", "--model", str(checkpoint), "--store", store, "--out", str(out), "--steps", "3"]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "GRPO step -> weights 1" in result.output
    assert "stopped after 1 steps" in result.output
    assert json.loads((out / "state.json").read_text())["version"] == 1
    assert (out / "weights" / "1" / "model.safetensors").is_file()
