"""What a vision model makes of an image: placeholder tokens in the prompt.

A chat template writes one *target* for an image (often a single token); vLLM puts as many placeholder tokens there as
the image has embeddings, with tokens between them if the model wants that. What is recorded is the prompt as the model
sees it, expanded. What is sent is the prompt before that, with the images: expanded a second time, its history would
be another prompt. So an image's expansion is asked of vLLM once, and each prompt is expanded here; vLLM's own
expansion of it is held against ours with every sampling (`Engine.sample`).
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from addons.conversation import Conversation, Media, Message
from addons.engine import Engine, EngineFacts
from addons.errors import BadRequest, EngineRefused
from addons.generate import Shown
from addons.media import data_url, images
from addons.prompts import Prompts, TemplateError

logger = logging.getLogger(__name__)

_KEEP = 4096
"""Images whose expansions are kept; one forgotten is asked for again."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An image in a prompt: its expansion is `prompt[offset : offset + length]`."""

    sha256: str
    media_type: str
    offset: int
    length: int

    def json(self) -> dict[str, Any]:
        """For the store."""
        return {"sha256": self.sha256, "media_type": self.media_type, "offset": self.offset, "length": self.length}


class Images:
    """The images of one served model. `target` are the ids that vLLM expands."""

    def __init__(self, engine: Engine, facts: EngineFacts, target: Sequence[int]) -> None:
        self._engine = engine
        self._facts = facts
        self.target = tuple(target)
        self._expansions: OrderedDict[str, list[int]] = OrderedDict()

    async def learn(self, conversation: Conversation) -> None:
        """Ask vLLM for the expansions of the conversation's images, where they are not known.

        Raises:
            BadRequest: one that is no image, or none that the model takes.
        """
        for image in images(conversation.messages):
            assert image.sha256 is not None
            if image.sha256 not in self._expansions:
                try:
                    ids = await self._engine.expansion(self._facts, data_url(image))
                except EngineRefused as error:
                    if error.status != 400:
                        raise
                    raise BadRequest(f"Could not process image: {error.message}", param=image.param) from error
                self._expansions[image.sha256] = ids
            self._expansions.move_to_end(image.sha256)
        while len(self._expansions) > _KEEP:
            self._expansions.popitem(last=False)

    def expand(
        self, ids: Sequence[int], shown: Sequence[Media], start: int = 0
    ) -> tuple[list[int], tuple[Placed, ...]]:
        """`ids` with the expansion of each of the `shown` images for each target, and where they are.

        `start` is the place of `ids` in the whole prompt, where the expansions' places count from.
        """
        out: list[int] = []
        placed: list[Placed] = []
        at = 0
        for image in shown:
            assert image.sha256 is not None
            found = _find(ids, self.target, at)
            if found is None:
                raise TemplateError(f"the template shows {len(placed)} of {len(shown)} images")
            out += ids[at:found]
            expansion = self._expansions[image.sha256]
            placed.append(Placed(image.sha256, image.media_type, start + len(out), len(expansion)))
            out += expansion
            at = found + len(self.target)
        if shown and _find(ids, self.target, at) is not None:
            raise TemplateError("the template shows more images than there are")
        return [*out, *ids[at:]], tuple(placed)

    def collapse(self, prompt: Sequence[int], placed: Sequence[Placed]) -> list[int]:
        """The inverse of `expand`, for a whole prompt: what vLLM expands itself."""
        out: list[int] = []
        at = 0
        for one in placed:
            out += [*prompt[at : one.offset], *self.target]
            at = one.offset + one.length
        return [*out, *prompt[at:]]

    def shown(self, prompt: Sequence[int], placed: Sequence[Placed], conversation: Conversation) -> Shown:
        """A prompt as vLLM is sent it, with its images out of the conversation."""
        known = {image.sha256: image for image in images(conversation.messages)}
        return Shown(self.collapse(prompt, placed), [data_url(known[one.sha256]) for one in placed])

    def sampled_one(self, sampled: Sequence[int]) -> bool:
        """Whether the model sampled a target itself, which vLLM could not tell from an image's."""
        return _find(sampled, self.target, 0) is not None


async def find_images(engine: Engine, facts: EngineFacts, prompts: Prompts) -> Images | None:
    """Try whether the served model takes images, by showing it one; None where it takes none.

    Raises:
        EngineRefused: vLLM broke over it.
    """
    if prompts.template.image is None:
        return None
    probe = _probe()
    words = Message("user", "an image", media=(probe,))
    try:
        expansion = await engine.expansion(facts, data_url(probe))
        collapsed = prompts.first(Conversation((words,)))
        expanded, [(offset, length)] = await engine.expanded(facts, Shown(collapsed, [data_url(probe)]))
    except (EngineRefused, TemplateError, ValueError) as error:
        if isinstance(error, EngineRefused) and error.status == 500:
            raise
        logger.warning(
            "the chat template of %s shows images, but vLLM takes none as harnesstap sends them (%s): they become "
            "words. A vision model needs vLLM with --enable-scale-out, as `trainer serve` starts it.",
            facts.model, error,
        )  # fmt: skip
        return None
    after = len(expanded) - offset - length
    target = collapsed[offset : len(collapsed) - after]
    whole = [*collapsed[:offset], *expansion, *collapsed[len(collapsed) - after :]]
    if not target or whole != expanded:
        logger.warning("vLLM does not expand an image of %s as it says it does: images become words", facts.model)
        return None
    return Images(engine, facts, target)


def _find(ids: Sequence[int], target: tuple[int, ...], start: int) -> int | None:
    size = len(target)
    for at in range(start, len(ids) - size + 1):
        if ids[at] == target[0] and tuple(ids[at : at + size]) == target:
            return at
    return None


def _probe() -> Media:
    return Media(0, len("an image"), "image", "image/png", _GREY, hashlib.sha256(_GREY).hexdigest())


_GREY = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PMQ0AAAwDoEqv9ErYvQQckD4XAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAYHLAB8+AWnmfUycAAAAAElFTkSuQmCC"
)
"""64 x 64 pixels."""
