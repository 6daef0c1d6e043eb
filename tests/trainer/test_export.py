from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trainer.export import export
from trainer.notes import read_note
from trainer.policy import find_checkpoint, load_policy, token_logprobs

IDS = [4 + (11 * k) % 250 for k in range(40)]


def test_tied_policy_becomes_two_weights(tied_checkpoint: Path, tmp_path: Path) -> None:
    policy = load_policy(tied_checkpoint)
    path = export(policy, tmp_path / "out", version="3")
    tensors = load_file(path / "model.safetensors")
    assert torch.equal(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])
    config = json.loads((path / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert config["dtype"] == "float32"
    assert read_note(path) == {"weight_version": "3", "tied": True}
    assert read_note(tied_checkpoint) == {}


def test_a_tied_policy_is_tied_again_when_training_goes_on(tied_checkpoint: Path, tmp_path: Path) -> None:
    policy = load_policy(tied_checkpoint)
    again = load_policy(export(policy, tmp_path / "out", version="1"))
    assert again.tied
    assert again.model.lm_head.weight is again.model.model.embed_tokens.weight
    assert len(list(again.model.parameters())) == len(list(policy.model.parameters()))
    assert token_logprobs(again.model, IDS, 1) == token_logprobs(policy.model, IDS, 1)
    twice = export(again, tmp_path / "twice", version="2")
    assert torch.equal(
        load_file(twice / "model.safetensors")["lm_head.weight"],
        load_file(twice / "model.safetensors")["model.embed_tokens.weight"],
    )


def test_weights_are_the_models_and_the_rest_is_the_sources(checkpoint: Path, tmp_path: Path) -> None:
    source = shutil.copytree(checkpoint, tmp_path / "source")
    (source / "chat_template.jinja").write_text("{# exactly\r\n this #}")
    (source / ".git").mkdir()
    policy = load_policy(source)
    with torch.no_grad():
        policy.model.model.norm.weight.add_(0.5)
    policy.model.config.pad_token_id = 7  # training changes such things; they are not the checkpoint's
    path = export(policy, tmp_path / "out", version="1")
    kept = sorted(p.name for p in source.iterdir() if p.is_file() and not p.name.startswith(("model", "config")))
    assert len(kept) >= 3
    for name in kept:
        assert (path / name).read_bytes() == (source / name).read_bytes(), name
    assert not (path / ".git").exists()
    assert json.loads((path / "config.json").read_text())["pad_token_id"] == 0
    moved = load_file(path / "model.safetensors")["model.norm.weight"]
    assert torch.equal(moved, load_file(source / "model.safetensors")["model.norm.weight"] + 0.5)


def test_an_older_export_is_replaced_whole(checkpoint: Path, tmp_path: Path) -> None:
    policy = load_policy(checkpoint)
    for version in ("1", "2"):
        export(policy, tmp_path / "out", version=version)
    assert read_note(tmp_path / "out")["weight_version"] == "2"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_failed_export_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    policy = load_policy(checkpoint)
    policy.source = tmp_path / "no-source"
    with pytest.raises(FileNotFoundError):
        export(policy, tmp_path / "out", version="1")
    assert list(tmp_path.iterdir()) == []


def test_find_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    assert find_checkpoint(str(checkpoint)) == checkpoint.resolve()
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        find_checkpoint(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        find_checkpoint("./nowhere")


def test_token_logprobs_are_those_of_the_whole_sequence(checkpoint: Path) -> None:
    model = load_policy(checkpoint).model
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([IDS])).logits[0] / 0.7
    wanted = [logits[i - 1].log_softmax(-1)[IDS[i]].item() for i in range(30, 40)]
    assert token_logprobs(model, IDS, 30, temperature=0.7) == pytest.approx(wanted, abs=1e-5)
    with pytest.raises(ValueError, match="start"):
        token_logprobs(model, IDS, 0)
