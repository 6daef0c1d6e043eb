"""Prompts made anew from their messages, as a trainer without stored ids has to: what `replay report` compares with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Rows:
    """Training rows made in some way: how many, and tokens in all of them together."""

    rows: int
    tokens: int


class Refused(ValueError):
    """The model's template does not take these messages."""


class Renderer:
    """A model's tokenizer and chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> Renderer:
        """From a model's folder. Raises ValueError where there is no tokenizer, or no chat template."""
        if not (folder / "tokenizer.json").is_file():
            raise ValueError(f"no tokenizer.json in {folder}: --tokenizer takes a model's folder")
        from transformers import PreTrainedTokenizerFast  # takes seconds

        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
        if not tokenizer.chat_template:
            raise ValueError(f"{folder} has no chat template, so nothing can be rendered with it")
        return cls(tokenizer)

    def prompt(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of the whole prompt for neutral `messages`, with the generation prompt. Raises Refused."""
        from jinja2 import TemplateError

        offered = [{"type": "function", "function": dict(tool)} for tool in tools] or None
        try:
            text = self._tokenizer.apply_chat_template(
                [openai_message(message) for message in messages], tools=offered, tokenize=False,
                add_generation_prompt=True,
            )  # fmt: skip
        except (TemplateError, TypeError, ValueError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def openai_message(message: Mapping[str, Any], *, parsed: bool = True) -> dict[str, Any]:
    """A neutral message in the form of Chat Completions, as chat templates take it.

    `parsed` gives tool arguments as objects, which templates want; otherwise as JSON text, which the API wants.
    """
    out: dict[str, Any] = {"role": message["role"], "content": message.get("content") or ""}
    if message.get("reasoning"):
        out["reasoning_content"] = message["reasoning"]
    if calls := message.get("tool_calls"):
        out["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": arguments(call["arguments"]) if parsed else call["arguments"],
                },
            }
            for call in calls
        ]
    for name in ("tool_call_id", "name"):
        if message.get(name) is not None:
            out[name] = message[name]
    return out


def arguments(text: str) -> Any:
    """A tool call's arguments; the text itself where it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def joined(calls: Sequence[tuple[list[int], list[int]]]) -> Rows:
    """Rows by exact prefixes: a call goes on the row that all its prompt's beginning equals, the longest; or opens one.

    `calls` are prompt ids and sampled ids, in order.
    """
    rows: list[list[int]] = []
    for prompt, sampled in calls:
        fitting = [index for index, row in enumerate(rows) if prompt[: len(row)] == row]
        whole = prompt + sampled
        if fitting:
            rows[max(fitting, key=lambda index: len(rows[index]))] = whole
        else:
            rows.append(whole)
    return Rows(len(rows), sum(map(len, rows)))
