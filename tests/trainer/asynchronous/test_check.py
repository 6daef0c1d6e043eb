"""Where TRL's asynchronous trainer cannot run, that is said before anything starts."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from trainer.asynchronous.check import check_machine, check_model
from trainer.cli import app

pytestmark = pytest.mark.slow


def test_the_command_is_refused_without_a_gpu(tmp_path: Path) -> None:
    """Before the model and the record are looked for: neither is there."""
    store = f"sqlite:///{tmp_path / 'none.db'}"
    result = CliRunner().invoke(app, ["grpo", "--model", str(tmp_path / "none"), "--store", store, "--async"])
    assert result.exit_code == 1
    assert "--async needs a GPU" in result.output
    assert "FlashAttention 3" in result.output
    assert "Use --follow" in result.output
    assert not (tmp_path / "none.db").exists()


def test_what_else_the_machine_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install kernels"):
        check_machine()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="one process, and 4 were launched"):
        check_machine()
    monkeypatch.delenv("WORLD_SIZE")
    check_machine()


def test_models_with_other_layers_than_attention(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    for layers in (None, ["full_attention", "sliding_attention"]):
        config.write_text(json.dumps({"layer_types": layers}))
        check_model(tmp_path)
    for found in ({"layer_types": ["conv", "full_attention"]}, {"text_config": {"layer_types": ["conv"]}}):
        config.write_text(json.dumps(found))
        with pytest.raises(ValueError, match=r"layers of conv\. Use --follow"):
            check_model(tmp_path)
