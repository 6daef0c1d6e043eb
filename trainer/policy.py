"""The policy being trained: where its checkpoint is, how it is loaded, and the logprobs it gives to tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.adapters import Lora, merged_state
from trainer.notes import read_note

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(slots=True)
class Policy:
    """A model in float32 with its tokenizer; `source` is the directory that it was loaded from.

    `tied` says whether its input and output embeddings are one parameter. `model` is the model itself, or PEFT's model
    around it once it has adapters.
    """

    model: Any
    tokenizer: PreTrainedTokenizerBase
    source: Path
    tied: bool
    adapted: bool = False

    @property
    def base(self) -> PreTrainedModel:
        """The model without PEFT around it."""
        base: PreTrainedModel = self.model.get_base_model() if self.adapted else self.model
        return base

    @property
    def pad_id(self) -> int:
        """The id that batches are padded with. Raises ValueError where there is neither a pad nor an eos token."""
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self.tokenizer.eos_token_id
        if pad is None:
            raise ValueError(f"the tokenizer of {self.source} has neither a pad nor an eos token")
        return int(pad)

    def adapt(self, lora: Lora, adapter: Path | None = None) -> None:
        """Freeze the weights and train adapters instead: new ones, which change nothing yet, or those in `adapter`."""
        from peft import PeftModel, get_peft_model

        if adapter is None:
            self.model = get_peft_model(self.model, lora.config())
        else:
            self.model = PeftModel.from_pretrained(self.model, str(adapter), is_trainable=True)
        self.adapted = True

    def state(self) -> dict[str, Any]:
        """The weights under the names of the checkpoint, adapters merged in."""
        return merged_state(self.model) if self.adapted else self.model.state_dict()


def find_checkpoint(model: str) -> Path:
    """The directory of `model`: a path, or a Hugging Face id (downloaded unless it is cached).

    Raises FileNotFoundError when `model` is a path without a checkpoint.
    """
    path = Path(model).expanduser()
    if (path / "config.json").is_file():
        return path.resolve()
    if path.exists() or model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise FileNotFoundError(f"no checkpoint in {model}: {path / 'config.json'} does not exist")
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, ignore_patterns=["*.bin", "*.pth", "*.gguf", "*.onnx", "original/*"]))


def load_policy(checkpoint: Path) -> Policy:
    """Load `checkpoint` in float32: updates of 1e-6 vanish in the eight bits of a bfloat16 weight."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    note = read_note(checkpoint)
    # Our own export is untied for vLLM's sake: its two weights are equal, and become one parameter again here.
    again = {"tie_word_embeddings": True} if note.get("tied") else {}
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, **again)
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and head.weight is embedding.weight
    return Policy(model=model, tokenizer=AutoTokenizer.from_pretrained(checkpoint), source=checkpoint, tied=tied)


def text_prompts(tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Three prompts of plain text, each longer than a block of vLLM's prefix cache (128 tokens on CPU)."""
    lines = ("The quick brown fox jumps over the lazy dog. ", "ls -la | sort -r > out.txt\n", "x = [i for i in y]\n")
    prompts = []
    for line in lines:
        ids = tokenizer.encode(line, add_special_tokens=False)
        prompts.append((ids * (200 // len(ids) + 1))[:200])
    return prompts


def token_logprobs(
    model: PreTrainedModel, ids: Sequence[int], start: int, *, temperature: float = 1.0, autocast: bool = False
) -> list[float]:
    """Logprobs (nats) of `ids[start:]`, each given all ids before it, under `model` at `temperature`.

    `autocast` computes in bfloat16, as training on a GPU does.
    """
    import torch

    if not 0 < start <= len(ids):
        raise ValueError(f"start must be within 1..{len(ids)}, not {start}")
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
            row = torch.tensor([list(ids)], device=model.device)
            keep = len(ids) - start + 1
            logits = model(input_ids=row, use_cache=False, logits_to_keep=keep).logits[0, :-1].float() / temperature
        target = row[0, start:].unsqueeze(-1)
        found: list[float] = logits.log_softmax(-1).gather(-1, target).squeeze(-1).tolist()
        return found
    finally:
        model.train(was_training)
