"""Small models made on the spot, and where larger ones can be found: for the tests of prompts and replies."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from addons.conversation import Delta, Message, ReasoningDelta, TextDelta, Tool, ToolCall, ToolCallDelta
from addons.model import ModelFiles

CHATML = """\
{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- 'Tools:' }}{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif not (loop.first and tools and m.role == 'system') %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}
{{- m.content }}
{%- for c in m.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) + '}' }}
{{- '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if thinking %}{{- '<think>\\n' }}{%- endif %}{%- endif %}
"""

# Like Gemma's: no system message, and users and assistants in turn.
STRICT = """\
{{- bos_token }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ raise_exception('System role not supported') }}{%- endif %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{%- endif %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + (m.content | trim) }}
{{- '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}
"""

_CORPUS = [
    "The files are in the folder; list them with ls -la and read one with cat. user assistant system model tool",
    '{"name": "bash", "arguments": {"command": "ls -la /tmp", "timeout": 10}} {"path": "/etc/hosts", "n": 3}',
    "Grüße, 한국어, 🧑‍🚀 é ê ü ß — “quotes” … def main(argv: list[str]) -> None:\n    return None\n\n\n",
    "<think>\nI will look.\n</think>\n\n<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>",
]
CHATML_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML_MARKUP = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

BASH = Tool("bash", "Run it.", {"type": "object", "properties": {"command": {"type": "string"}}})


def byte_level(special: Sequence[str], markup: Sequence[str] = ()) -> Tokenizer:
    """A small byte-level BPE, as Qwen's and Llama 3's: added tokens outside the model's vocabulary."""
    tokenizer = Tokenizer.from_str(_trained_byte_level())
    _add(tokenizer, special, markup)
    return tokenizer


@lru_cache
def _trained_byte_level() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS * 4, trainer)
    return tokenizer.to_str()


def byte_fallback(special: Sequence[str], markup: Sequence[str] = ()) -> Tokenizer:
    """A small BPE in SentencePiece's manner, as Gemma's: `▁` for spaces, byte tokens, specials in the vocabulary."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.train_from_iterator(_CORPUS * 4, trainers.BpeTrainer(vocab_size=500, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    names = ["<unk>", *special, *markup, *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"]]
    tokenizer = Tokenizer(
        models.BPE(
            {name: number for number, name in enumerate(dict.fromkeys(names))},
            [tuple(pair) for pair in model["merges"]],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    _add(tokenizer, special, markup)
    return tokenizer


def unigram(special: Sequence[str], markup: Sequence[str] = ()) -> Tokenizer:
    """A Unigram model whose vocabulary spells its special tokens, so that plain text can become one of them."""
    characters = sorted({character for text in _CORPUS for character in text.replace(" ", "▁")} | set("<|>[]/_"))
    pieces = [("<unk>", -20.0), *((name, -1.0) for name in (*special, *markup)), *((c, -8.0) for c in characters)]
    pieces += [(f"<0x{byte:02X}>", -18.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    _add(tokenizer, special, markup)
    return tokenizer


def _add(tokenizer: Tokenizer, special: Sequence[str], markup: Sequence[str]) -> None:
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in markup])


def model_files(
    folder: Path, tokenizer: Tokenizer, template: str, eos: str, stops: Sequence[str] = (), **config: object
) -> ModelFiles:
    """Write a model's files and load them. `stops` go to generation_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    written = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(written))
    (folder / "chat_template.jinja").write_text(template)
    if stops:
        ids = [tokenizer.token_to_id(stop) for stop in stops]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    return ModelFiles.load(str(folder))


def chatml(folder: Path, kind: str = "byte_level", template: str = CHATML, **config: object) -> ModelFiles:
    """A ChatML model with Hermes tool calls; `kind` names one of the tokenizers above."""
    make = {"byte_level": byte_level, "byte_fallback": byte_fallback, "unigram": unigram}[kind]
    return model_files(folder, make(CHATML_SPECIAL, CHATML_MARKUP), template, "<|im_end|>", (), **config)


def strict(folder: Path) -> ModelFiles:
    """A model that knows no system message and wants users and assistants in turn."""
    special = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
    return model_files(folder, byte_fallback(special), STRICT, "<eos>", ("<end_of_turn>",), bos_token="<bos>")


_STOPS = {  # by the beginning of the template's name: the tokens that end a turn, the tokenizer's eos first
    "cohere": ("<|END_OF_TURN_TOKEN|>",),
    "deepseek": ("<｜end▁of▁sentence｜>",),
    "gemma4": ("<eos>", "<turn|>", "<|tool_response>"),
    "gemma": ("<eos>", "<end_of_turn>"),
    "glm4moe": ("<|endoftext|>", "<|user|>", "<|observation|>"),
    "gptoss": ("<|return|>", "<|call|>"),
    "llama3": ("<|eot_id|>",),
    "muse": ("<|eot|>",),
    "phi3": ("<|endoftext|>", "<|end|>"),
}
_TOKEN = re.compile(
    r"<[|｜][^|｜<>\s{}']{2,40}[|｜]>|<\|?[a-z][a-z_|]{1,24}\|?>|</[a-z_]{3,20}>|<\|\"\|>|\[gMASK\]|<sop>"
)


def trl_templates() -> dict[str, str]:
    """The chat templates that the installed TRL ships, without importing it; none where it is not installed."""
    spec = importlib.util.find_spec("trl")
    if spec is None or not spec.submodule_search_locations:
        return {}
    folder = Path(spec.submodule_search_locations[0]) / "chat_templates"
    skipped = ("_training", "idefics", "llava", "smolvlm", "diffusion")
    found = {path.stem: path.read_text() for path in sorted(folder.glob("*.jinja"))}
    return {name: text for name, text in found.items() if not any(part in name for part in skipped)}


def trl_model(folder: Path, name: str, template: str) -> ModelFiles:
    """A byte-level tokenizer with every token that the template writes, and the family's stop tokens."""
    stops = next((stops for start, stops in _STOPS.items() if name.startswith(start)), ("<|im_end|>",))
    written = {text for text in _TOKEN.findall(template) if not re.fullmatch(r"</?(tools?|function|parameter)>", text)}
    begin = "<｜begin▁of▁sentence｜>" if name.startswith("deepseek") else "<bos>"
    special = sorted({*stops, *(text for text in written if "|" in text or "｜" in text or "turn" in text), begin})
    markup = sorted(written - set(special))
    return model_files(folder, byte_level(special, markup), template, stops[0], stops, bos_token=begin)


def call(name: str = "bash", arguments: str = '{"command": "ls"}', number: int = 1) -> ToolCall:
    return ToolCall(f"call_{number:024x}", name, arguments)


def said(deltas: Sequence[Delta]) -> Message:
    """The message that a client puts together from the deltas."""
    text, reasoning = "", ""
    calls: list[ToolCall] = []
    for delta in deltas:
        if isinstance(delta, TextDelta):
            text += delta.text
        elif isinstance(delta, ReasoningDelta):
            reasoning += delta.text
        elif isinstance(delta, ToolCallDelta) and delta.id is not None and delta.name is not None:
            assert delta.index == len(calls)
            calls.append(ToolCall(delta.id, delta.name, delta.arguments))
        else:
            last = calls[delta.index]
            calls[delta.index] = ToolCall(last.id, last.name, last.arguments + delta.arguments)
    return Message("assistant", text, reasoning, tuple(calls))
