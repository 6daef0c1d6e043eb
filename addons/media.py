"""Images and documents of a request: out of its text, and to the model or to its words.

Theory of operation. A dialect reads a request's parts as text and joins them. An image it `mark`s: the mark is text
too, of characters that no JSON escapes and a nonce that no request can know, and goes through every join. When the
dialect is done, `lifted` takes the marks out again: each leaves the words for its medium in the text, and the medium
itself, with its place, in `Message.media`. A model that cannot see needs nothing more, since the words are already
there. For one that can, `with_images` writes something else in their place.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from addons.conversation import Call, Conversation, Media, Message
from addons.errors import BadRequest

Policy = Literal["placeholder", "refuse"]
"""What becomes of media that the model cannot see: words in their place, or the provider's 400."""

_NONCE = secrets.token_hex(8)
_MARK = re.compile(rf"q{_NONCE}\.([\w=-]+)\.q", re.ASCII)


def mark(
    words: str, kind: str, *, param: str, ignored: str, refusal: str, media_type: str = "", data: bytes | None = None
) -> str:
    """A medium as text, for a dialect to join with other text; the arguments are those of :class:`Media`.

    In `refusal`, `{model}` stands for the model's name.
    """
    encoded = None if data is None else base64.b64encode(data).decode()
    fields = json.dumps([words, kind, media_type, encoded, param, ignored, refusal])
    return f"q{_NONCE}.{base64.urlsafe_b64encode(fields.encode()).decode()}.q"


def as_text(kind: str, name: str | None, data: bytes) -> str:
    """A text file as text, under a heading with its name where it has one."""
    text = data.decode("utf-8", "replace")
    return f"[{kind}: {name}]\n{text}" if name else text


def lifted(message: Message) -> Message:
    """The message with every mark taken out of its text."""
    if _NONCE not in message.content and _NONCE not in message.reasoning:
        return message
    text, media = _taken_out(message.content)
    reasoning, _ = _taken_out(message.reasoning)
    return replace(message, content=text, reasoning=reasoning, media=tuple(media))


def joined(first: Message, second: Message, between: str) -> Message:
    """Two messages as one, in the manner of the first; `between` goes between two texts that are not empty."""
    between = between if first.content and second.content else ""
    shift = len(first.content) + len(between)
    moved = (replace(one, start=one.start + shift, end=one.end + shift) for one in second.media)
    return replace(first, content=first.content + between + second.content, media=(*first.media, *moved))


def with_images(message: Message, write: Callable[[Media], str]) -> str:
    """The message's text with `write(image)` in place of the words for each of its images."""
    pieces, end = [], 0
    for image in message.images:
        pieces += [message.content[end : image.start], write(image)]
        end = image.end
    return "".join([*pieces, message.content[end:]])


def images(messages: Sequence[Message]) -> list[Media]:
    """What of the messages' media a vision model is shown, in order."""
    return [image for message in messages for image in message.images]


def files(messages: Sequence[Message], wanted: set[str]) -> dict[str, bytes]:
    """The bytes of the `wanted` images by their sha256."""
    return {one.sha256: one.data for one in images(messages) if one.sha256 in wanted and one.data is not None}


def in_words(conversation: Conversation) -> Conversation:
    """The conversation for a model that cannot see: the words, and no media."""
    if not any(message.media for message in conversation.messages):
        return conversation
    return replace(conversation, messages=tuple(replace(message, media=()) for message in conversation.messages))


def check(call: Call, *, sees: bool, policy: Policy) -> None:
    """Raise BadRequest, in the provider's words, for the first medium that the model cannot see; by policy."""
    if policy == "refuse" and (unseen := next(_unseen(call, sees=sees), None)) is not None:
        raise BadRequest(unseen.refusal.replace("{model}", call.model), param=unseen.param)


def ignored_fields(call: Call, *, sees: bool) -> tuple[str, ...]:
    """The call's `ignored_fields`, but for those of media that the model sees."""
    if not sees:
        return call.ignored_fields
    unseen = {one.ignored for one in _unseen(call, sees=sees)}
    seen = {one.ignored for one in images(call.conversation.messages)}
    return tuple(name for name in call.ignored_fields if name not in seen - unseen)


def from_base64(text: str) -> bytes:
    """The bytes of base64 in either alphabet, padded or not, in one line or several. Raises ValueError."""
    plain = "".join(text.split()).rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def data_url(image: Media) -> str:
    """An image as a `data:` URL."""
    assert image.data is not None
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def media_json(media: Media) -> dict[str, Any]:
    """A medium for the store, without its bytes."""
    known = {"start": media.start, "end": media.end, "kind": media.kind, "media_type": media.media_type}
    return known if media.sha256 is None else {**known, "sha256": media.sha256}


def _unseen(call: Call, *, sees: bool) -> Iterator[Media]:
    for message in call.conversation.messages:
        yield from (one for one in message.media if not (sees and one in message.images))


def _taken_out(marked: str) -> tuple[str, list[Media]]:
    """The text with words where the marks were, and the media."""
    text, media, end = "", [], 0
    for found in _MARK.finditer(marked):
        words, kind, media_type, encoded, param, ignored, refusal = json.loads(base64.urlsafe_b64decode(found[1]))
        text += marked[end : found.start()]
        data = None if encoded is None else base64.b64decode(encoded)
        digest = None if data is None else hashlib.sha256(data).hexdigest()
        at = len(text), len(text) + len(words)
        media.append(Media(*at, kind, media_type, data, digest, param, ignored, refusal))
        text += words
        end = found.end()
    return text + marked[end:], media
