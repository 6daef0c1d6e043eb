"""The parts of a Chat message's content as text; images, audio and files are marked."""

from __future__ import annotations

from addons.dialects.data_urls import is_text, read_data_url
from addons.dialects.fields import Fields, refuse, without_indices
from addons.media import as_text, from_base64, mark


def part_text(part: Fields, kind: str) -> str:
    """One part, its type read already, as text.

    Raises:
        BadRequest: an unknown type, or data that is not base64.
    """
    match kind:
        case "text" | "refusal":
            text: str = part.need(kind, part.text(kind))
            return text
        case "image_url":
            return _image(part)
        case "input_audio":
            audio = part.need(kind, part.object(kind))
            form = audio.need("format", audio.text("format"))
            data = _decoded(audio, "data", audio.need("data", audio.text("data")))
            audio.close()
            words = f"[audio: {form}, {len(data)} bytes]"
            return _marked(part, words, kind, "audio", kind, f"audio/{form}", data)
        case "file":
            return _file(part)
    refuse(
        part.at("type"),
        f"Invalid value for '{part.at('type')}': '{kind}'. Supported values are: 'text', 'image_url', 'input_audio', "
        "'refusal', and 'file'.",
    )


def _image(part: Fields) -> str:
    image = part.need("image_url", part.object("image_url"))
    url = image.need("url", image.text("url"))
    image.ignore("detail")
    image.close()
    if not url.startswith("data:"):
        return _marked(part, f"[image: {url}]", "image_url", "image", "image_url")
    media_type, data = read_data_url(image, "url", url)
    words = f"[image: {media_type}, {len(data)} bytes]"
    return _marked(part, words, "image_url", "image", "image_url", media_type, data)


def _file(part: Fields) -> str:
    file = part.need("file", part.object("file"))
    name, raw, file_id = file.text("filename"), file.text("file_data"), file.text("file_id")
    file.close()
    if raw is None:
        return _marked(part, f"[file: {file.need('file_data', file_id)}]", "file", "file", "file")
    media_type, data = read_data_url(file, "file_data", raw)
    if is_text(media_type):
        return as_text("file", name, data)
    words = f"[file: {name or 'unnamed'}, {media_type}, {len(data)} bytes]"
    return _marked(part, words, "file", "file", "file", media_type, data)


def _marked(
    part: Fields, words: str, key: str, kind: str, type_: str, media_type: str = "", data: bytes | None = None
) -> str:
    ignored = without_indices(part.at(key))
    part.ignored.add(ignored)
    return mark(
        words, kind, param=part.at("type").replace("[", ".["), ignored=ignored, media_type=media_type, data=data,
        refusal=f"Invalid content type. {type_} is only supported by certain models.",
    )  # fmt: skip


def _decoded(owner: Fields, key: str, text: str) -> bytes:
    try:
        return from_base64(text)
    except ValueError:
        refuse(owner.at(key), f"Invalid '{owner.at(key)}'. Expected base64, but got invalid base64.")
