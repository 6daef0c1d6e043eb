from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from addons.model import ModelError, ModelFiles
from tests.addons.kit import CHATML, chatml, strict


def test_reads_the_files(tmp_path: Path) -> None:
    model = chatml(tmp_path, response_template={"start_anchor": "x", "fields": {"content": {}}})
    assert model.template == CHATML
    assert [model.token_text(number) for number in model.stop_ids] == ["<|im_end|>"]
    assert model.response_template == {"start_anchor": "x", "fields": {"content": {}}}
    assert len(model.template_hash) == 64


def test_stop_ids_are_those_of_both_files(tmp_path: Path) -> None:
    model = strict(tmp_path)
    assert {model.token_text(number) for number in model.stop_ids} == {"<eos>", "<end_of_turn>"}


def test_the_hash_tells_template_and_tokenizer(tmp_path: Path) -> None:
    first = chatml(tmp_path / "a")
    same = chatml(tmp_path / "b")
    other_template = chatml(tmp_path / "c", template=CHATML + " ")
    other_tokenizer = chatml(tmp_path / "d", "byte_fallback")
    assert first.template_hash == same.template_hash
    assert len({first.template_hash, other_template.template_hash, other_tokenizer.template_hash}) == 3


def test_of_several_templates_the_one_for_tools(tmp_path: Path) -> None:
    chatml(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": CHATML}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert ModelFiles.load(str(tmp_path)).template == CHATML


def test_a_template_can_be_given(tmp_path: Path) -> None:
    chatml(tmp_path)
    model = ModelFiles.load(str(tmp_path), template="{{ messages[0].content }}")
    assert model.template == model.tokenizer.chat_template == "{{ messages[0].content }}"


def test_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"no such folder"):
        ModelFiles.load(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no tokenizer\.json.*save_pretrained"):
        ModelFiles.load(str(tmp_path / "empty"))
    chatml(tmp_path / "base")
    (tmp_path / "base" / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match=r"no chat template"):
        ModelFiles.load(str(tmp_path / "base"))
    chatml(tmp_path / "endless")
    (tmp_path / "endless" / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"no stop token"):
        ModelFiles.load(str(tmp_path / "endless"))
    with pytest.raises(ModelError, match=r"neither a folder nor a Hugging Face id"):
        ModelFiles.load("not//an/id")


def test_a_hub_id_comes_from_the_cache(tmp_path: Path) -> None:
    """In a process of its own: huggingface_hub reads its environment when it is imported."""
    chatml(tmp_path / "hub/models--org--name/snapshots/abc")
    (tmp_path / "hub/models--org--name/refs").mkdir()
    (tmp_path / "hub/models--org--name/refs/main").write_text("abc")
    program = (
        "from addons.model import ModelError, ModelFiles\n"
        "print(ModelFiles.load('org/name').path.name)\n"
        "try: ModelFiles.load('org/absent')\n"
        "except ModelError as error: print(error)\n"
        "import addons.prompts, addons.replies, sys\n"
        "print('torch' in sys.modules)"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub"), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    found, absent, torch = done.stdout.splitlines()
    assert found == "abc"
    assert "hf download org/absent" in absent
    assert torch == "False"


def test_tap_up_says_what_is_wrong_with_the_files_before_it_listens(tmp_path: Path) -> None:
    chatml(tmp_path / "base")
    (tmp_path / "base" / "chat_template.jinja").unlink()
    for arguments, expected in (
        (["--model", str(tmp_path / "nowhere")], "nowhere: no such folder"),
        (["--model", str(tmp_path / "base")], "no chat template"),
        (["--model", str(chatml(tmp_path / "whole").path), "--parser", "nope"], "no parser 'nope'"),
    ):
        command = [sys.executable, "-c", "from addons.cli import app; app()", "up", "--home", str(tmp_path / "home")]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
        assert done.returncode == 1
        assert expected in done.stderr
        assert "proxy on" not in done.stderr
        assert "Traceback" not in done.stderr
