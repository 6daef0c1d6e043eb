"""What a text model sees of Anthropic Messages' content blocks.

Text is text, and so are text documents and search results. What a text model cannot see (an image, a PDF) is a
placeholder in its place, and reported. What the provider's own tools did is shown as JSON, without the parts that
only the provider can read; so is a block that nobody knows yet, which is reported too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from addons.dialects.fields import Fields, wrong_type

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
                report(block, kind)
                source = block.need("source", block.object("source"))
                return _placeholder(kind, *_where(source, source.need("type", source.text("type"))))
            case "document":
                return self._document(block)
            case "search_result":
                heading = _placeholder("search result", block.text("title"), block.text("source"))
                found = block.need("content", block.raw("content"))
                return "\n".join([heading, *Content(block, "content").texts(found)])
            case "tool_reference":
                return _placeholder("tool", block.need("tool_name", block.text("tool_name")))
            case "container_upload":
                report(block, kind)
                return _placeholder("file", block.need("file_id", block.text("file_id")))
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
            report(block, "document")
            heading, inner = [_placeholder("document", title, *_where(source, kind))], []
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


def _where(source: Fields, kind: str) -> list[str]:
    """Media type and size of a source of `kind`, or where it is to be had."""
    if kind == "base64":
        media = source.need("media_type", source.text("media_type"))
        data = source.need("data", source.text("data"))
        size = len(data) * 3 // 4 - data[-2:].count("=")
        facts = [media, f"{size} bytes"]
    else:
        facts = [source.text("url") or source.text("file_id") or kind]
    source.close()
    return facts


def _placeholder(kind: str, *facts: str | None) -> str:
    said = ", ".join(fact for fact in facts if fact)
    return f"[{kind}: {said}]" if said else f"[{kind}]"


def report(block: Fields, kind: str) -> None:
    """Name a block of `kind` in `ignored_fields`: `messages[].content[type=image]`."""
    path = unnumbered(block.path)
    block.ignored.add(f"{path.removesuffix('[]')}[type={kind}]")


def unnumbered(path: str) -> str:
    """A path without indices, as `ignored_fields` has it."""
    return re.sub(r"\[\d+\]", "[]", path)
