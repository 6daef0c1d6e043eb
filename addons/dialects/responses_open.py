"""An output item while it is being streamed: its first events, its deltas, its last events and final form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from addons.conversation import Call, ToolCall
from addons.dialects.responses_compaction import compaction_item
from addons.dialects.responses_reply import call_item, item_id, message_item, reasoning_item, text_part

Write = Callable[[str, dict[str, Any]], bytes]
"""Writes one event: its kind, and its fields."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item is written to, and as which: `index` counts the response's items."""

    write: Write
    call: Call
    reply_id: str
    index: int


class OpenItem(Protocol):
    """The item that is open."""

    def open(self) -> bytes:
        """It begins."""

    def say(self, text: str) -> bytes:
        """More of it; never empty."""

    def close(self, *, cut_short: bool) -> tuple[bytes, dict[str, Any]]:
        """It ends; the events, and the item as the finished response has it."""


class OpenReasoning:
    """Reasoning, as a summary or as content."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._name = item_id("rs_", place.reply_id, place.index)
        self._texts: list[str] = []
        summary = bool(place.call.options.get("summary"))
        self._text = "response.reasoning_summary_text" if summary else "response.reasoning_text"
        self._part = "response.reasoning_summary_part" if summary else "response.content_part"
        self._kind = "summary_text" if summary else "reasoning_text"
        self._at = {
            "item_id": self._name, "output_index": place.index,
            "summary_index" if summary else "content_index": 0,
        }  # fmt: skip

    def open(self) -> bytes:
        """It begins."""
        begun = {"id": self._name, "type": "reasoning", "summary": []}
        write = self._place.write
        return write("response.output_item.added", {"output_index": self._place.index, "item": begun}) + write(
            f"{self._part}.added", {**self._at, "part": {"type": self._kind, "text": ""}}
        )

    def say(self, text: str) -> bytes:
        """More of it."""
        self._texts.append(text)
        return self._place.write(f"{self._text}.delta", {**self._at, "delta": text})

    def close(self, *, cut_short: bool) -> tuple[bytes, dict[str, Any]]:
        """It ends."""
        text, write = "".join(self._texts), self._place.write
        item = reasoning_item(self._name, text, self._place.call)
        out = write(f"{self._text}.done", {**self._at, "text": text})
        out += write(f"{self._part}.done", {**self._at, "part": {"type": self._kind, "text": text}})
        return out + write("response.output_item.done", {"output_index": self._place.index, "item": item}), item


class OpenText:
    """A message. `logprobs` are those that came since they were last written; it empties them."""

    def __init__(self, place: Place, logprobs: list[dict[str, Any]]) -> None:
        self._place = place
        self._name = item_id("msg_", place.reply_id, place.index)
        self._at = {"item_id": self._name, "output_index": place.index, "content_index": 0}
        self._texts: list[str] = []
        self._waiting = logprobs
        self._logprobs: list[dict[str, Any]] = []

    def open(self) -> bytes:
        """It begins."""
        begun = message_item(self._name, (), "in_progress")
        write = self._place.write
        return write("response.output_item.added", {"output_index": self._place.index, "item": begun}) + write(
            "response.content_part.added", {**self._at, "part": text_part("")}
        )

    def say(self, text: str) -> bytes:
        """More of it."""
        self._texts.append(text)
        return self._place.write(
            "response.output_text.delta", {**self._at, "delta": text, "logprobs": self._take_logprobs()}
        )

    def close(self, *, cut_short: bool) -> tuple[bytes, dict[str, Any]]:
        """It ends."""
        self._take_logprobs()
        text, write = "".join(self._texts), self._place.write
        part = text_part(text, self._logprobs)
        item = message_item(self._name, [part], "incomplete" if cut_short else "completed")
        out = write("response.output_text.done", {**self._at, "text": text, "logprobs": self._logprobs})
        out += write("response.content_part.done", {**self._at, "part": part})
        return out + write("response.output_item.done", {"output_index": self._place.index, "item": item}), item

    def _take_logprobs(self) -> list[dict[str, Any]]:
        taken = self._waiting.copy()
        self._waiting.clear()
        self._logprobs += taken
        return taken


class OpenCompaction:
    """A summary of the conversation, which the harness can only carry: it is written when it is complete."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._name = item_id("cmp_", place.reply_id, place.index)
        self._texts: list[str] = []

    def open(self) -> bytes:
        """It begins."""
        begun = {"id": self._name, "type": "compaction", "encrypted_content": ""}
        return self._place.write("response.output_item.added", {"output_index": self._place.index, "item": begun})

    def say(self, text: str) -> bytes:
        """More of it."""
        self._texts.append(text)
        return b""

    def close(self, *, cut_short: bool) -> tuple[bytes, dict[str, Any]]:
        """It ends."""
        item = compaction_item(self._name, "".join(self._texts))
        done = {"output_index": self._place.index, "item": item}
        return self._place.write("response.output_item.done", done), item


class OpenCall:
    """A tool call. Only a plain function call is written before it is complete."""

    def __init__(self, place: Place, tool_call: ToolCall, number: int) -> None:
        self._place = place
        self._tool_call = tool_call
        self.number = number
        self._texts: list[str] = []
        item, _ = call_item(place.reply_id, place.index, place.call, tool_call)
        offer = place.call.options.get("offers", {}).get(tool_call.name)
        self._begun = {**item, "status": "in_progress"} if offer is None or offer.kind == "function" else None

    def open(self) -> bytes:
        """It begins."""
        return b"" if self._begun is None else self._added(self._begun)

    def say(self, text: str) -> bytes:
        """More of its arguments."""
        self._texts.append(text)
        return b"" if self._begun is None else self._delta("function_call_arguments", self._begun["id"], text)

    def close(self, *, cut_short: bool) -> tuple[bytes, dict[str, Any]]:
        """It ends. Calls are said when they are complete, so none is ever cut short."""
        place = self._place
        complete = replace(self._tool_call, arguments="".join(self._texts))
        item, wire = call_item(place.reply_id, place.index, place.call, complete)
        out = b""
        if self._begun is None:
            begun = {**item, "status": "in_progress"}
            if wire.streamed is not None:
                begun[wire.streamed[0]] = ""
            out = self._added(begun)
        if wire.streamed is not None:
            field, stem = wire.streamed
            if self._begun is None and item[field]:
                out += self._delta(stem, item["id"], item[field])
            done = {"item_id": item["id"], "output_index": place.index, field: item[field]}
            if stem == "function_call_arguments":
                done["name"] = item["name"]
            out += place.write(f"response.{stem}.done", done)
        return out + place.write("response.output_item.done", {"output_index": place.index, "item": item}), item

    def _added(self, item: dict[str, Any]) -> bytes:
        return self._place.write("response.output_item.added", {"output_index": self._place.index, "item": item})

    def _delta(self, stem: str, name: str, text: str) -> bytes:
        return self._place.write(
            f"response.{stem}.delta", {"item_id": name, "output_index": self._place.index, "delta": text}
        )
