"""The ways of a push as a user names them: on the command line and in a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainer.cli import app
from trainer.recipe import Recipe, RecipeError

RECIPE = 'model = "m/m"\n[rollouts]\ntasks = "tasks"\n[training]\n'


def fails(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    assert result.exit_code != 0
    return " ".join(result.output.split())


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"r": 8}')
    return folder


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_what_a_directory_holds_decides_the_way(adapter: Path, whole: Path) -> None:
    assert f"{adapter} holds an adapter alone, pushed by lora, not by nccl" in fails(
        "push", str(adapter), "--push-by", "nccl"
    )
    assert f"{whole} holds a whole checkpoint, pushed by reload or nccl, not by lora" in fails(
        "push", str(whole), "--push-by", "lora"
    )


def test_a_recipe_names_the_way(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(RECIPE + 'push = "lora"\nlora_rank = 8\n')
    assert Recipe.load(path).training.push == "lora"
    path.write_text(RECIPE + 'push = "lora"\n')
    with pytest.raises(RecipeError, match="give lora_rank"):
        Recipe.load(path)
    path.write_text(RECIPE + 'push = "pigeon"\n')
    with pytest.raises(RecipeError, match=r"training\.push.*pigeon"):
        Recipe.load(path)


@pytest.mark.slow
def test_nccl_needs_another_vllm(tmp_path: Path, checkpoint: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(RECIPE.replace("m/m", str(checkpoint)) + 'push = "nccl"\n')
    assert "needs a vLLM on a GPU of its own" in fails("run", str(path), "--out", str(tmp_path / "out"))


def test_no_way_where_nothing_is_pushed() -> None:
    assert "--no-push that none are" in fails("grpo", "--model", "m", "--no-push", "--push-by", "lora")
