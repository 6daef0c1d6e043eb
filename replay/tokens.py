"""Token ids for the eye: as text where there is a tokenizer, coloured by how likely each sampled one was."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

# Least probability -> style. Plain is what the model was sure of; the eye goes to the red.
_STYLES = ((0.9, ""), (0.5, "green"), (0.1, "yellow"), (0.01, "dark_orange3"), (0.0, "bold red"))
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def load_tokenizer(path: Path) -> Tokenizer:
    """From a `tokenizer.json`, or a model's folder that has one. Raises ValueError."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"no tokenizer at {file}: give a tokenizer.json or a model's folder")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises Exception itself
        raise ValueError(f"{file} is not a tokenizer: {error}") from error


def decode(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """The text that each id adds, specials included; "" for an id that ends inside a character."""
    stream = DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, token) or "" for token in ids]


def sequence(
    new_prompt: Sequence[int],
    sampled: Sequence[int],
    logprobs: Sequence[float],
    tokenizer: Tokenizer | None,
    *,
    trained: bool = True,
) -> Text:
    """The new prompt tokens (dim) and the sampled ones: coloured by probability, when it is known, and struck
    through unless they are `trained`.
    """
    pieces = _pieces([*new_prompt, *sampled], tokenizer)
    text = Text()
    for piece in pieces[: len(new_prompt)]:
        text.append(piece, "dim")
    text.append("▸" if tokenizer is not None else "▸ ", "bold")
    for index, piece in enumerate(pieces[len(new_prompt) :]):
        known = style(logprobs[index]) if index < len(logprobs) else "italic"
        text.append(piece, known if trained else f"{known} strike")
    return text


def table(sampled: Sequence[int], logprobs: Sequence[float], tokenizer: Tokenizer | None) -> Table:
    """One row a sampled token: position, id, text, logprob (nats), probability."""
    view = Table(box=None, pad_edge=False)
    for header in ("", "id", "logprob", "p"):
        view.add_column(header, justify="right", no_wrap=True)
    view.add_column("text" if tokenizer is not None else "", no_wrap=True)
    texts = [""] * len(sampled) if tokenizer is None else [repr(piece)[1:-1] for piece in decode(sampled, tokenizer)]
    for index, (token, text) in enumerate(zip(sampled, texts, strict=True)):
        known = index < len(logprobs)
        logprob = Text(f"{logprobs[index]:.4f}" if known else "none", style(logprobs[index]) if known else "dim")
        probability = f"{math.exp(logprobs[index]):.3f}" if known else ""
        view.add_row(str(index), str(token), logprob, probability, Text(text))
    return view


def legend() -> Text:
    """What the colours mean."""
    text = Text("probability: ", "dim")
    for least, name in _STYLES:
        text.append(f" ≥ {least:g} " if least else " less ", name)
    return text.append("  dim: prompt  ", "dim").append("struck: not trained", "strike")


def style(logprob: float) -> str:
    """The style of a sampled token."""
    return next((name for least, name in _STYLES if logprob >= (math.log(least) if least else -math.inf)), "")


def visible(text: str) -> str:
    """Text safe for a terminal: control characters and lone surrogates shown, not sent."""
    return _UNSAFE.sub(lambda found: chr(0x2400 + ord(found[0])) if found[0] < " " else "\ufffd", text)


def _pieces(ids: Sequence[int], tokenizer: Tokenizer | None) -> list[str]:
    if tokenizer is None:
        return [f"{token} " for token in ids]
    return [visible(piece).replace("\n", "↵\n") for piece in decode(ids, tokenizer)]
