"""The pages of one turn: what was said, its tokens, and what went over the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay import codec, show
from replay.readiness import reasons_not_trained
from replay.schema import Turn
from replay.view.asking import Answer, Ask, File, Page
from replay.view.spans import piece

_SAFE_IMAGES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
"""Media types that a browser only paints; SVG, for one, may hold scripts."""
_LONGEST_LINE = 4000
_LONGEST_WIRE = 1 << 20
_VIEWS = ("messages", "tokens", "wire")


@dataclass(frozen=True, slots=True)
class Part:
    """Text of a message, or the image that it has there (its place among those of the prompt)."""

    text: str = ""
    image: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A message: who, and what."""

    role: str
    parts: tuple[Part, ...]
    reasoning: str
    calls: tuple[Mapping[str, Any], ...]
    answers: str | None
    """The call that a tool's message answers."""
    malformed: bool


def page(ask: Ask) -> Answer:
    """A turn: messages, tokens or wire, by `view`; with `history` also all that was said before."""
    session, turns, number = ask.turn()
    turn = turns[number - 1]
    numbers = {one.id: place for place, one in enumerate(turns, 1)}
    view = ask.one_of("view", _VIEWS) or "messages"
    values: dict[str, Any] = {
        "session": session, "turn": turn, "number": number, "count": len(turns), "tab": view, "views": _VIEWS,
        "facts": show.facts(turn, numbers), "parent": numbers.get(turn.parent_id or 0),
        "following": [numbers[one.id] for one in turns if one.parent_id == turn.id],
        "retry_of": numbers.get(turn.retry_of or 0),
    }  # fmt: skip
    fill = {"messages": _messages, "tokens": _tokens, "wire": _wire}[view]
    return Page(f"turn_{view}.html", values | fill(ask, turn, number))


def request_file(ask: Ask) -> Answer:
    """The request's body, whole."""
    session, turns, number = ask.turn()
    body = codec.dumps(ask.reader.request(turns[number - 1]))
    return File(body, "application/json", f"session{session.id}-turn{number}-request.json")


def reply_file(ask: Ask) -> Answer:
    """The reply as the record keeps it."""
    session, turns, number = ask.turn()
    body = codec.dumps(ask.reader.reply(turns[number - 1]))
    return File(body, "application/json", f"session{session.id}-turn{number}-reply.json")


def image(ask: Ask) -> Answer:
    """An image of the turn's prompt, by its place among them, from 1. Shown only where its type is harmless."""
    session, turns, number = ask.turn()
    images = ask.reader.images(turns[number - 1])
    place = ask.number("image")
    if not 1 <= place <= len(images):
        raise LookupError(f"turn {number} of session {session.name!r} has {len(images)} images, no image {place}")
    known = images[place - 1]
    body = ask.reader.image(known["sha256"])
    kind = _SAFE_IMAGES.get(known["media_type"])
    if kind is None:
        return File(body, "application/octet-stream", f"image{place}.bin")
    return File(body, known["media_type"], f"image{place}.{kind}", shown=True)


def _messages(ask: Ask, turn: Turn, number: int) -> dict[str, Any]:
    history = ask.text("history") is not None
    images = ask.reader.images(turn)
    said = ask.reader.messages(turn) if history else ask.reader.new_messages(turn)
    reply = ask.reader.reply(turn)
    return {
        "messages": [_said(message, images) for message in said],
        "reply": None if reply is None else _said(reply, images),
        "history": history,
        "tools": ask.reader.tools(turn),
        "shown_images": {place for place, one in enumerate(images, 1) if one["media_type"] in _SAFE_IMAGES},
    }


def _tokens(ask: Ask, turn: Turn, number: int) -> dict[str, Any]:
    [loaded] = [one for one in ask.reader.turns(ask.session(), tokens=True) if one.id == turn.id]
    tokens = piece(
        loaded.prompt_suffix, loaded.sampled or [], loaded.logprobs or [], ask.tokenizer,
        turn=number, purpose=turn.purpose, not_trained=reasons_not_trained([loaded])[turn.id],
    )  # fmt: skip
    known = [token.logprob for token in tokens.sampled if token.logprob is not None]
    return {
        "piece": tokens,
        "decoded": ask.tokenizer is not None,
        "mean": sum(known) / len(known) if known else None,
        "least": min(known, default=None),
    }


def _wire(ask: Ask, turn: Turn, number: int) -> dict[str, Any]:
    return {
        "request": _shortened(show.pretty(ask.reader.request(turn))),
        "answer": _shortened(show.pretty(ask.reader.reply(turn))),
    }


def _said(message: Mapping[str, Any], images: Sequence[Mapping[str, Any]]) -> Said:
    return Said(
        role=str(message.get("role", "?")),
        parts=tuple(_parts(message, images)),
        reasoning=message.get("reasoning") or "",
        calls=tuple(message.get("tool_calls") or ()),
        answers=message.get("tool_call_id"),
        malformed=bool(message.get("malformed")),
    )


def _parts(message: Mapping[str, Any], images: Sequence[Mapping[str, Any]]) -> list[Part]:
    """The text, with each image that the model was shown behind the words that stand for it."""
    content = message.get("content") or ""
    places = {one["sha256"]: place for place, one in enumerate(images, 1)}
    parts, end = [], 0
    for medium in message.get("media") or ():
        if medium.get("sha256") in places:
            parts += [Part(text=content[end : medium["end"]]), Part(image=places[medium["sha256"]])]
            end = medium["end"]
    return [one for one in (*parts, Part(text=content[end:])) if one.text or one.image is not None]


def _shortened(document: str) -> str:
    """JSON over lines has every text on a line of its own: long ones are cut, and so is the end."""
    lines, left = [], _LONGEST_WIRE
    for line in document.split("\n"):
        cut = len(line) - _LONGEST_LINE
        lines.append(line if cut <= 0 else f"{line[:_LONGEST_LINE]}… [{cut:,} more characters]")
        left -= len(lines[-1])
        if left < 0:
            return "\n".join([*lines, "… [more: the file has it all]"])
    return "\n".join(lines)
