"""The parts a Responses item is made of, as text; and text that travels inside `encrypted_content`.

An image or a document is marked: a text model gets the words of a placeholder in its place (the same for the same
input, so that a history keeps its tokens), and it is reported. Text files are put in as text, under their names.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from addons.dialects.data_urls import is_text, read_data_url
from addons.dialects.fields import Fields, refuse, without_indices, wrong_type
from addons.media import as_text, mark

_TEXT = {
    "input_text": "text", "output_text": "text", "text": "text", "summary_text": "text",
    "reasoning_text": "text", "refusal": "refusal",
}  # fmt: skip
_SEAL = "htap1."


def unheeded(f: Fields, *keys: str) -> None:
    """Report fields that were read and understood, but change nothing."""
    f.ignored.update(re.sub(r"\[\d+\]", "[]", f.at(key)) for key in keys)


def text_of(item: Fields, key: str, between: str = "") -> str:
    """Take a string or an array of parts as one text; `between` goes between the parts.

    Raises:
        BadRequest: another type, an unknown kind of part, or a data URL that is none.
    """
    value = item.raw(key)
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        item.need(key, value)
        wrong_type(item.at(key), "a string or an array of parts", value)
    return between.join(part_text(Fields(raw, f"{item.at(key)}[{i}]", item.ignored)) for i, raw in enumerate(value))


def part_text(part: Fields) -> str:
    """One part as text."""
    kind = part.need("type", part.text("type"))
    if kind in _TEXT:
        text = part.need(_TEXT[kind], part.text(_TEXT[kind]))
        for key in ("annotations", "logprobs"):  # there, and empty, in every reply that is sent back
            if part.raw(key):
                unheeded(part, key)
    elif kind == "input_image":
        text = _image(part)
    elif kind == "input_file":
        text = _file(part)
    elif kind == "input_audio":
        part.raw("input_audio")
        text = _marked(part, "[audio]", "input_audio", "audio")
    else:
        allowed = "'input_text', 'input_image', 'input_file', 'output_text', 'refusal'"
        refuse(part.at("type"), f"Invalid value: '{kind}'. Supported values are: {allowed}.")
    part.close()
    return str(text)


def _image(part: Fields) -> str:
    url, file_id = part.text("image_url"), part.text("file_id")
    part.ignore("detail")
    if url is not None and file_id is not None:
        unheeded(part, "file_id")
    if url is None:
        return _marked(part, f"[image: {part.need('image_url', file_id)}]", "file_id", "image")
    if not url.startswith("data:"):
        return _marked(part, f"[image: {url}]", "image_url", "image")
    kind, data = read_data_url(part, "image_url", url)
    return _marked(part, f"[image: {kind}, {len(data)} bytes]", "image_url", "image", kind, data)


def _file(part: Fields) -> str:
    name, raw, url, file_id = (part.text(key) for key in ("filename", "file_data", "file_url", "file_id"))
    part.ignore("detail")
    unheeded(part, *(key for key, given in (("file_url", url), ("file_id", file_id)) if given is not None))
    if raw is None:
        words = f"[file: {part.need('file_data', url or file_id)}]"
        return _marked(part, words, "file_url" if url else "file_id", "file")
    kind, data = read_data_url(part, "file_data", raw)
    if is_text(kind):
        return as_text("file", name, data)
    return _marked(part, f"[file: {name or 'unnamed'}, {kind}, {len(data)} bytes]", "file_data", "file", kind, data)


def _marked(part: Fields, words: str, key: str, kind: str, media_type: str = "", data: bytes | None = None) -> str:
    unheeded(part, key)
    return mark(
        words, kind, param=part.at("type"), ignored=without_indices(part.at(key)), media_type=media_type, data=data,
        refusal=f"Invalid content type. input_{kind} is only supported by certain models.",
    )  # fmt: skip


def seal(text: str) -> str:
    """`text` as `encrypted_content`: harnesses carry it without a look, and give it back."""
    return _SEAL + base64.urlsafe_b64encode(text.encode()).decode()


def unseal(sealed: Any) -> str | None:
    """The text of a :func:`seal`; None for anybody else's encrypted content."""
    if not isinstance(sealed, str) or not sealed.startswith(_SEAL):
        return None
    try:
        return base64.b64decode(sealed[len(_SEAL) :], altchars=b"-_", validate=True).decode()
    except ValueError:
        return None
