"""A tiny vision model with random weights, made in seconds: Idefics3's form (SigLIP tower, connector, Llama).

It says nothing sensible. What it is for: vLLM serves it as it serves any vision model, an image becomes more tokens
the larger it is, and its logprobs depend on the image it was shown. Its image processor needs no torchvision.

    python -m tests.e2e.tiny_vision FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.addons.kit import CHATML, CHATML_MARKUP, CHATML_SPECIAL, byte_level

IMAGE = "<image>"
TILE, PATCH, SCALE = 28, 7, 2
TOKENS = (TILE // PATCH // SCALE) ** 2
"""Embedded tokens of one tile; an image is one tile, or a grid of them and a small copy of the whole."""
SPECIAL = (
    *CHATML_SPECIAL, IMAGE, "<fake_token_around_image>", "<end_of_utterance>", "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
)  # fmt: skip

_SAID = (
    "{% macro said(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}"
)
TEMPLATE = _SAID + CHATML.replace("m.content", "said(m.content)").replace(
    "messages[0].content", "said(messages[0].content)"
)


def make(folder: Path) -> Path:
    """Write the model's files, weights included."""
    import torch
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_level(SPECIAL, CHATML_MARKUP)
    tokenizer.save(str(folder / "tokenizer.json"))
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {
        **size, "model_type": "llama", "num_key_value_heads": 2, "max_position_embeddings": 4096,
        "vocab_size": -(-tokenizer.get_vocab_size() // 64) * 64, "bos_token_id": None, "tie_word_embeddings": False,
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"), "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
    }  # fmt: skip
    config = Idefics3Config(
        vision_config={**size, "image_size": TILE, "patch_size": PATCH}, text_config=text, scale_factor=SCALE,
        image_token_id=tokenizer.token_to_id(IMAGE), pad_token_id=tokenizer.token_to_id("<|endoftext|>"),
    )  # fmt: skip
    torch.manual_seed(0)
    model = Idefics3ForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:  # larger than models begin with, or one image would look like another
                weight.normal_(0, 0.5 if "embed" in name else weight[0].numel() ** -0.5)
        # It must not say what only templates write: an end of turn, or a token that stands for an image.
        model.lm_head.weight[[tokenizer.token_to_id(token) for token in (*SPECIAL, *CHATML_MARKUP)]] = 0
        model.lm_head.weight[tokenizer.get_vocab_size() :] = 0
    model.save_pretrained(folder)
    images = {
        "image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 2 * TILE},
        "max_image_size": {"longest_edge": TILE}, "do_image_splitting": True, "do_convert_rgb": True,
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    (folder / "processor_config.json").write_text(
        json.dumps({"processor_class": "Idefics3Processor", "image_seq_len": TOKENS})
    )
    return folder


if __name__ == "__main__":
    make(Path(sys.argv[1]))
