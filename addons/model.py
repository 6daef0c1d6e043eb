"""What is read from the served model's files: tokenizer, chat template, stop ids. No weights, and no
torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from transformers import PreTrainedTokenizerFast

from addons.errors import CallError
from replay.fingerprint import template_hash

_FILES = (
    "tokenizer*.json",
    "*.jinja",
    "additional_chat_templates/*",
    "special_tokens_map.json",
    "*config.json",
)


class ModelError(CallError):
    """The model's files cannot serve as they are; the text says what is missing and what to do.

    Told at start-up, or to the first call where vLLM came up only then: the harness waits as for one that is down.
    """

    status = 503
    kind = "unavailable"
    retry_after = 30


@dataclass(frozen=True, slots=True, eq=False)
class ModelFiles:
    """The files of a model that decide its token ids."""

    name: str
    """As it was asked for: a path or a Hugging Face id."""
    path: Path
    tokenizer: PreTrainedTokenizerFast
    template: str
    """The chat template, Jinja source."""
    template_hash: str
    """sha256, 64 hex digits, over the template's text and the digest of tokenizer.json."""
    stop_ids: frozenset[int]
    """Ids that end a turn: `eos_token_id` of generation_config.json and the tokenizer's own."""
    response_template: dict[str, Any] | None
    """How transformers' response parser reads this model's replies, where the model's author says so."""
    stamp: frozenset[tuple[str, int]]
    """Names and modification times of the files, nanoseconds."""

    @classmethod
    def load(cls, name: str, template: str | None = None) -> ModelFiles:
        """Read a local folder, or a Hugging Face id through its cache (`HF_HUB_OFFLINE` is honoured).

        `template` replaces the model's own chat template (Jinja source).
        Raises ModelError, with what to do about it.
        """
        path = _locate(name)
        tokenizer_file = path / "tokenizer.json"
        if not tokenizer_file.is_file():
            raise ModelError(
                f"{name}: no tokenizer.json in {path}. Only fast tokenizers are supported: make one with "
                f"transformers.AutoTokenizer.from_pretrained({name!r}).save_pretrained(DIR) and name DIR"
            )
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(path), local_files_only=True)
        tokenizer.name_or_path = name
        text = template if template is not None else _template(name, tokenizer.chat_template)
        tokenizer.chat_template = text
        stop_ids = _stop_ids(path, tokenizer)
        if not stop_ids:
            raise ModelError(
                f"{name}: no stop token. Set eos_token in tokenizer_config.json, or eos_token_id (a number "
                "or a list) in generation_config.json"
            )
        return cls(
            name=name,
            path=path,
            tokenizer=tokenizer,
            template=text,
            template_hash=template_hash(text, tokenizer_file.read_bytes()),
            stop_ids=stop_ids,
            response_template=tokenizer.response_template,
            stamp=_stamp(path),
        )

    def changed(self) -> bool:
        """Whether the files were written since they were read (a vLLM that restarts may have been given others)."""
        return self.stamp != _stamp(self.path)

    def token_text(self, token_id: int) -> str:
        """The text of one token of the vocabulary, as the vocabulary spells it."""
        text: str | None = self.tokenizer.backend_tokenizer.id_to_token(token_id)
        if text is None:
            raise ModelError(f"{self.name}: token id {token_id} is not in the vocabulary")
        return text


def _locate(name: str) -> Path:
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith(("./", "../", "~")):
        raise ModelError(f"{name}: no such folder")
    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except HFValidationError as error:
        raise ModelError(f"{name}: neither a folder nor a Hugging Face id ({error})") from error
    except LocalEntryNotFoundError as error:
        raise ModelError(
            f"{name}: not in the local Hugging Face cache, and the hub cannot be asked. Run "
            f"`hf download {name}` where there is a network, or name a local folder"
        ) from error
    except HfHubHTTPError as error:
        raise ModelError(f"{name}: the Hugging Face hub refused it: {error}") from error


def _stamp(path: Path) -> frozenset[tuple[str, int]]:
    found = {file for pattern in _FILES for file in path.glob(pattern)}
    return frozenset((file.name, file.stat().st_mtime_ns) for file in found)


def _template(name: str, found: str | dict[str, str] | None) -> str:
    """The one template to use; of several named ones the one meant for tools, since agents have tools."""
    if isinstance(found, dict):
        for key in ("tool_use", "default"):
            if key in found:
                return found[key]
        raise ModelError(f"{name}: chat templates {sorted(found)}, but neither 'tool_use' nor 'default'")
    if not found:
        raise ModelError(
            f"{name}: no chat template (chat_template.jinja, or chat_template in tokenizer_config.json). Is "
            "it a base model? Name an instruction-tuned one, or give a template of your own"
        )
    return found


def _stop_ids(path: Path, tokenizer: PreTrainedTokenizerFast) -> frozenset[int]:
    ids: set[int] = set()
    config = path / "generation_config.json"
    if config.is_file():
        declared = json.loads(config.read_text(encoding="utf-8")).get("eos_token_id")
        ids.update([declared] if isinstance(declared, int) else declared or [])
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return frozenset(ids)
