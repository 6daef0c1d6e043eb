"""Anthropic Messages' content blocks as text.

Text is text, and so are text documents and search results. An image or a PDF is marked: a text model gets the words of
a placeholder for it, and it is reported. What the provider's own tools did is shown as JSON, without the parts that
only the provider can read; so is a block that nobody knows yet, which is reported too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from addons.dialects.fields import Fields, wrong_type
from addons.dialects.messages_errors import dotted, invalid
from addons.media import from_base64, mark

_SERVER_SIDE = re.compile(r"server_tool_use|mcp_tool_use|mcp_tool_listing|\w+_tool_result|browser_state|compaction")
_OPAQUE = frozenset(
    {"encrypted_content", "encrypted_index", "encrypted_stdout", "signature", "cache_control", "caller"}
)


@dataclass(frozen=True, slots=True)
class Content:
    """The value of `key` of `owner`: a string, or blocks."""

    owner: Fields
    key: str

    def blocks(self, value: Any) -> Iterator[tuple[Fields, dict[str, Any]]]:
        """Each block to read (and close), and as it is."""
        path = self.owner.at(self.key)
        if not isinstance(value, list):
            wrong_type(path, "a string or an array of blocks", value)
        for index, raw in enumerate(value):
            yield Fields(raw, f"{path}[{index}]", self.owner.ignored), raw

    def texts(self, value: Any) -> Iterator[str]:
        """What a text model sees of each block."""
        if isinstance(value, str):
            yield value
            return
        for block, raw in self.blocks(value):
            yield self.text(block, block.need("type", block.text("type")), raw)
            block.close()

    def text(self, block: Fields, kind: str, raw: dict[str, Any]) -> str:
        """What a text model sees of one block."""
        match kind:
            case "text":
                text: str = block.need("text", block.text("text"))
                return text
            case "image":
                source = block.need("source", block.object("source"))
                return _medium(block, kind, source, source.need("type", source.text("type")))
            case "document":
                return self._document(block)
            case "search_result":
                heading = _placeholder("search result", block.text("title"), block.text("source"))
                found = block.need("content", block.raw("content"))
                return "\n".join([heading, *Content(block, "content").texts(found)])
            case "tool_reference":
                return _placeholder("tool", block.need("tool_name", block.text("tool_name")))
            case "container_upload":
                words = _placeholder("file", block.need("file_id", block.text("file_id")))
                return _marked(block, kind, "file", words)
            case "tool_addition" | "tool_removal" | "fallback":
                report(block, kind)
                block.ignore(*raw)
                return ""
        if not _SERVER_SIDE.fullmatch(kind):
            report(block, kind)
        return self._as_json(block, kind, raw)

    def _document(self, block: Fields) -> str:
        title, context = block.text("title"), block.text("context")
        source = block.need("source", block.object("source"))
        kind = source.need("type", source.text("type"))
        if kind in ("text", "content"):
            key = "data" if kind == "text" else "content"
            inner = list(Content(source, key).texts(source.need(key, source.raw(key))))
            source.raw("media_type")
            source.close()
            heading = [_placeholder("document", title)] if title else []
        else:
            heading, inner = [_medium(block, "document", source, kind, title)], []
        return "\n".join([*heading, *([context] if context else []), *inner])

    def _as_json(self, block: Fields, kind: str, raw: dict[str, Any]) -> str:
        for key in raw:
            block.raw(key)
        shown = {key: value for key, value in raw.items() if key != "type"}
        return f"[{kind} {json.dumps(self._shown(shown, block.path, block.ignored), ensure_ascii=False)}]"

    def _shown(self, value: Any, path: str, ignored: set[str]) -> Any:
        """JSON without what only the provider can read, and with placeholders for what is no text."""
        if isinstance(value, list):
            return [self._shown(item, f"{path}[{i}]", ignored) for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if value.get("type") in ("image", "document"):
            block = Fields(value, path, ignored)
            text = self.text(block, block.need("type", block.text("type")), value)
            block.close()
            return text
        kept = {key: item for key, item in value.items() if item is not None}
        ignored |= {unnumbered(f"{path}.{key}") for key in _OPAQUE & kept.keys()}
        return {k: self._shown(v, f"{path}.{k}", ignored) for k, v in kept.items() if k not in _OPAQUE}


def _medium(block: Fields, kind: str, source: Fields, held: str, title: str | None = None) -> str:
    """An image or a document whose source is of type `held`: its type and size, or where it is to be had."""
    media_type, data = "", None
    if held == "base64":
        media_type = source.need("media_type", source.text("media_type"))
        try:
            data = from_base64(source.need("data", source.text("data")))
        except ValueError:
            invalid(source, "data", "Invalid base64 data")
        facts = [media_type, f"{len(data)} bytes"]
    else:
        facts = [source.text("url") or source.text("file_id") or held]
    source.close()
    return _marked(block, kind, kind, _placeholder(kind, title, *facts), media_type, data)


def _marked(block: Fields, type_: str, kind: str, words: str, media_type: str = "", data: bytes | None = None) -> str:
    return mark(
        words, kind, param=block.path, ignored=report(block, type_), media_type=media_type, data=data,
        refusal=f"{dotted(block.path)}: '{{model}}' does not support {kind} input.",
    )  # fmt: skip


def _placeholder(kind: str, *facts: str | None) -> str:
    said = ", ".join(fact for fact in facts if fact)
    return f"[{kind}: {said}]" if said else f"[{kind}]"


def report(block: Fields, kind: str) -> str:
    """Name a block of `kind` in `ignored_fields`, and return that name: `messages[].content[type=image]`."""
    name = f"{unnumbered(block.path).removesuffix('[]')}[type={kind}]"
    block.ignored.add(name)
    return name


def unnumbered(path: str) -> str:
    """A path without indices, as `ignored_fields` has it."""
    return re.sub(r"\[\d+\]", "[]", path)
