"""vLLM's `/inference/v1/generate` (`--enable-scale-out`): token ids and images in, token ids out.

It can what `/v1/completions` cannot: it takes images, and tells which weights sampled which tokens when a push comes
into a call. Ids and logprobs are the same on both. Its requests and replies are written here in terms of the other's,
so that the rest of the engine's client is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from addons.completions import Adapt
from addons.errors import EngineMismatch

PATH = "/inference/v1/generate"


@dataclass(frozen=True, slots=True)
class Shown:
    """A prompt: `ids` with one target for each image, which vLLM expands, and the images as `data:` URLs."""

    ids: list[int]
    urls: list[str] = field(default_factory=list)


def request(model: str, shown: Shown, params: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """The body of a call. `params` are sampling parameters in vLLM's words."""
    body: dict[str, Any] = {
        "model": model,
        "token_ids": shown.ids,
        "content_parts": [{"type": "image_url", "url": url} for url in shown.urls],
        "sampling_params": {"logprobs": 0, **params},
        "return_token_ids": bool(shown.urls),  # the prompt again: only images make another of it
        "stream": stream,
    }
    return {**body, "stream_options": {"include_usage": True}} if stream else body


def adapter(prompt: list[int]) -> Adapt:
    """Gives a reply, or one event of a stream, in the form of a completion's.

    It raises EngineMismatch for a prompt that vLLM expanded to another than `prompt`, and KeyError, TypeError or
    AttributeError for what is no reply.
    """

    def adapt(reply: dict[str, Any]) -> dict[str, Any]:
        if (at := _differs(reply, prompt)) is not None:
            raise EngineMismatch(f"vLLM expands the images to another prompt than expected, from token {at} on")
        return {**reply, "choices": [{**choice, "logprobs": _logprobs(choice)} for choice in reply["choices"]]}

    return adapt


def places(reply: dict[str, Any]) -> tuple[list[int], list[tuple[int, int]]]:
    """The prompt as vLLM expanded it, and the offset and length of each image in it."""
    placed = (reply.get("mm_placeholders") or {}).get("image", ())
    return list(reply["prompt_token_ids"]), [(place["offset"], place["length"]) for place in placed]


def _differs(reply: dict[str, Any], prompt: Sequence[int]) -> int | None:
    """Where vLLM's prompt differs from `prompt`; None where it does not, or the event does not tell it."""
    told = reply.get("prompt_token_ids")
    if told is None or told == prompt:
        return None
    shorter = min(len(told), len(prompt))
    return next((at for at in range(shorter) if told[at] != prompt[at]), shorter)


def _logprobs(choice: dict[str, Any]) -> dict[str, Any]:
    content = (choice.get("logprobs") or {}).get("content") or ()
    return {
        "token_logprobs": [place["logprob"] for place in content],
        "top_logprobs": [
            {f"token_id:{one['token_id']}": one["logprob"] for one in place["top_logprobs"]} for place in content
        ],
    }
