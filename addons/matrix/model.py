"""A model without weights: one token a byte, and a chat template. Any text has ids, any ids have a text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

START, END = "<|im_start|>", "<|im_end|>"
_MARKUP = ("<tool_call>", "</tool_call>")


def write_model(folder: Path) -> Path:
    """Write the files that :class:`addons.model.ModelFiles` reads into `folder`; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: number for number, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in (START, END)])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in _MARKUP])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    shutil.copy(Path(__file__).with_name("chat_template.jinja"), folder)
    return folder
