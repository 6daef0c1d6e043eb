"""A trained policy as a directory that vLLM can reload into a running server, exactly."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.notes import NOTE, write_note

if TYPE_CHECKING:
    from trainer.policy import Policy

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json")
_OURS = ("config.json", NOTE)


def export(policy: Policy, destination: Path, *, version: str) -> Path:
    """Write the policy's weights, adapters merged in, to `destination` and return its absolute path.

    Tokenizer, chat templates, generation_config and any code of the checkpoint that the policy was loaded from are
    copied byte for byte, and its config.json with two changes. The head is written as a weight of its own with
    `tie_word_embeddings` false, because vLLM's reload is silently wrong for tied weights; a note tells whether the
    policy itself shares them, so that training can go on as before (:mod:`trainer.notes`). The dtype is the model's.

    The directory appears whole or not at all, and replaces one of the same name.
    """
    destination = destination.resolve()
    partial = destination.with_name(f".{destination.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    try:
        _write(policy, partial, version=version)
    except BaseException:
        shutil.rmtree(partial)
        raise
    _replace(partial, destination)
    return destination


def _write(policy: Policy, partial: Path, *, version: str) -> None:
    model, source = policy.base, policy.source
    model.save_pretrained(partial, state_dict=_unshared(policy.state()), max_shard_size="4GB")
    # What save_pretrained says beside the weights is the training process's view (pad token, generation defaults).
    for path in partial.iterdir():
        if not path.name.endswith(_WEIGHTS):
            path.unlink()
    _copy_companions(source, partial)
    config = _untied(json.loads((source / "config.json").read_text()))
    config.pop("torch_dtype", None)
    config["dtype"] = str(model.dtype).removeprefix("torch.")
    (partial / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    write_note(partial, weight_version=version, tied=policy.tied)
    _sync(partial)


def _unshared(state: dict[str, Any]) -> dict[str, Any]:
    """Give every tensor storage of its own, so that none is left out as an alias of another."""
    seen: set[int] = set()
    result = {}
    for name, tensor in state.items():
        pointer = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if pointer in seen else tensor
        seen.add(pointer)
    return result


def _untied(config: dict[str, Any]) -> dict[str, Any]:
    """`config` with `tie_word_embeddings` false, also in the sub-configs of a composite model that name it."""
    nested = {
        key: _untied(value)
        for key, value in config.items()
        if isinstance(value, dict) and "tie_word_embeddings" in value
    }
    return config | nested | {"tie_word_embeddings": False}


def _copy_companions(source: Path, target: Path) -> None:
    for path in sorted(source.iterdir()):
        if path.name.startswith(".") or path.name.endswith(_WEIGHTS) or path.name in _OURS:
            continue
        if path.is_dir():
            if path.name == "additional_chat_templates":
                shutil.copytree(path, target / path.name)
        else:
            shutil.copyfile(path, target / path.name)


def _sync(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _replace(partial: Path, destination: Path) -> None:
    """Rename `partial` to `destination`; an older directory of that name is moved out of the way first."""
    if destination.exists():
        old = destination.with_name(f".{destination.name}.old")
        if old.exists():
            shutil.rmtree(old)
        destination.rename(old)
        partial.rename(destination)
        shutil.rmtree(old)
    else:
        partial.rename(destination)
