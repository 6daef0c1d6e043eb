"""What a chat template writes for an image, and writing it where images are in the text.

Templates take images as parts of a message's content, and some only in a user's. Here the text of every message
stays one string: a sentinel stands for each image while the template renders, and what the template would have
written for an image takes its place afterwards. So the structure of it (`<|vision_start|>`, say) is the template's,
and the same words in anybody's text stay words.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from addons.conversation import Media
from addons.habits import Render, TemplateError

_NONCE = secrets.token_hex(8)
_SENTINEL = re.compile(rf"q{_NONCE}i([0-9a-f]+)q")


def sentinel(image: Media) -> str:
    """Letters and digits that stand for an image."""
    assert image.sha256 is not None
    return f"q{_NONCE}i{image.sha256}q"


def sentinels(text: str) -> list[str]:
    """The sentinels in a text, in order."""
    return [found[0] for found in _SENTINEL.finditer(text)] if _NONCE in text else []


def put(text: str, placeholder: str | None, given: Sequence[str]) -> str:
    """`text` with the placeholder for each sentinel.

    `given` are the sentinels of all that was rendered; a tail of it has the last ones. Raises TemplateError where
    they come in another order: vLLM goes by the order alone.
    """
    found = sentinels(text)
    if found != list(given[len(given) - len(found) :]):
        raise TemplateError("the template shows images in another order than they come in")
    if found and placeholder is None:
        raise TemplateError("the template cannot show images")
    return _SENTINEL.sub(lambda _: placeholder or "", text)


def find_placeholder(render: Render) -> str | None:
    """What the template writes for an image among a user's words; None where it shows none."""
    if not _reads_parts(render):
        return None
    said = [_inserted(render, count) for count in (1, 2)]
    return said[0] if said[0] and said[1] == said[0] * 2 else None  # it may number them


def _reads_parts(render: Render) -> bool:
    """Whether a part's text is shown as that text: many a template prints the list, or drops it."""
    try:
        text, parts = (render([{"role": "user", "content": said}]) for said in ("probe-u1", [_text("probe-u1")]))
    except TemplateError:
        return False
    return "probe-u1" in text and text == parts


def _inserted(render: Render, images: int) -> str:
    """What `images` images between two words add to a rendering."""
    before, after = _text("probe-u1"), _text("probe-u2")
    try:
        without = render([{"role": "user", "content": [before, after]}])
        shown = render([{"role": "user", "content": [before, *[{"type": "image"}] * images, after]}])
    except TemplateError:
        return ""
    start = 0
    while start < len(without) and without[start : start + 1] == shown[start : start + 1]:
        start += 1
    return shown[start : len(shown) - len(without) + start] if shown.endswith(without[start:]) else ""


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
