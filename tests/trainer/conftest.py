"""A random Llama of a few thousand parameters with a byte-level tokenizer, made here: no network, no files kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trainer import serve

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_checkpoint(directory: Path, *, tied: bool = False, seed: int = 0, layers: int = 2) -> Path:
    """Write a random Llama (vocabulary 260, hidden 64) to `directory`; seeds give different weights."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<|pad|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(specials + alphabet)}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<|pad|>", eos_token="<|im_end|>", additional_special_tokens=specials
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    generation = {"eos_token_id": [2, 3], "pad_token_id": 0, "temperature": 1.0, "_note": "kept byte for byte"}
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=4))
    return directory


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "untied")


@pytest.fixture(scope="session")
def tied_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / "tied", tied=True)


@dataclass(frozen=True)
class RunningVllm:
    """A vLLM that serves the checkpoint it was started on, until a test pushes other weights."""

    url: str
    checkpoint: Path


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Iterator[RunningVllm]:
    """A real vLLM on the random model; about a minute on two cores."""
    options = serve.ServeOptions(model=str(checkpoint), kv_cache_gib=1, extra=("--max-num-seqs", "8"))
    with serve.running(options, log=tmp_path_factory.mktemp("vllm") / "vllm.log") as url:
        yield RunningVllm(url, checkpoint)
