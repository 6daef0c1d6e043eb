"""The parts a Responses item is made of, as text; and text that travels inside `encrypted_content`.

The model reads text only, so an image or a document becomes a visible placeholder in its place (the same for
the same input, so that a history keeps its tokens) and is reported. Text files are put in as text.
"""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from addons.dialects.fields import Fields, refuse, wrong_type

_TEXT = {
    "input_text": "text", "output_text": "text", "text": "text", "summary_text": "text",
    "reasoning_text": "text", "refusal": "refusal",
}  # fmt: skip
_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?P<more>(?:;[^;,]*)*),(?P<data>.*)", re.DOTALL)
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")
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
        part.ignore("input_audio")
        text = "[audio]"
    else:
        allowed = "'input_text', 'input_image', 'input_file', 'output_text', 'refusal'"
        refuse(part.at("type"), f"Invalid value: '{kind}'. Supported values are: {allowed}.")
    part.close()
    return str(text)


def _image(part: Fields) -> str:
    url, file_id = part.text("image_url"), part.text("file_id")
    part.ignore("detail")
    unheeded(part, *(key for key, given in (("image_url", url), ("file_id", file_id)) if given is not None))
    if url is None:
        return f"[image: {part.need('image_url', file_id)}]"
    if not url.startswith("data:"):
        return f"[image: {url}]"
    kind, data = _data(part, "image_url", url)
    return f"[image: {kind}, {len(data)} bytes]"


def _file(part: Fields) -> str:
    name, raw, url, file_id = (part.text(key) for key in ("filename", "file_data", "file_url", "file_id"))
    part.ignore("detail")
    unheeded(part, *(key for key, given in (("file_url", url), ("file_id", file_id)) if given is not None))
    if raw is None:
        return f"[file: {part.need('file_data', url or file_id)}]"
    kind, data = _data(part, "file_data", raw)
    if kind.startswith(_TEXT_TYPES):
        return data.decode("utf-8", "replace")
    unheeded(part, "file_data")
    return f"[file: {name or 'unnamed'}, {kind}, {len(data)} bytes]"


def _data(part: Fields, key: str, url: str) -> tuple[str, bytes]:
    """Media type and bytes of a data URL, or of bare base64."""
    found = _DATA_URL.fullmatch(url)
    kind, more, data = found.group("type", "more", "data") if found else ("", ";base64", url)
    if ";base64" not in more:
        return kind or "text/plain", unquote_to_bytes(data)
    try:
        return kind or "application/octet-stream", base64.b64decode("".join(data.split()), validate=True)
    except ValueError:
        refuse(part.at(key), f"Invalid '{part.at(key)}'. Expected a base64-encoded data URL, but got invalid base64.")


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
