"""`data:` URLs, as both of OpenAI's dialects carry files in them."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from addons.dialects.fields import Fields, refuse
from addons.media import from_base64

_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?P<more>(?:;[^;,]*)*),(?P<data>.*)", re.DOTALL)
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")


def read_data_url(owner: Fields, key: str, url: str) -> tuple[str, bytes]:
    """Media type and bytes of `key` of `owner`: a data URL, or bare base64.

    Raises:
        BadRequest: it is not base64, though it says so.
    """
    found = _DATA_URL.fullmatch(url)
    kind, more, data = found.group("type", "more", "data") if found else ("", ";base64", url)
    if ";base64" not in more:
        return kind or "text/plain", unquote_to_bytes(data)
    try:
        return kind or "application/octet-stream", from_base64(data)
    except ValueError:
        path = owner.at(key)
        refuse(path, f"Invalid '{path}'. Expected a base64-encoded data URL, but got invalid base64.")


def is_text(media_type: str) -> bool:
    """Whether a document of this type is text that a model can read as it is."""
    return media_type.startswith(_TEXT_TYPES)
