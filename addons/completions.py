"""vLLM's `/v1/completions` by token ids: what is asked, and what is sampled.

It does not tell which weights sampled which tokens: where `addons.generate` can be asked, that is. The text it returns
is ignored: prompt ids that end inside a character can make it repeat the prompt, and stop strings are cut by rules of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from addons.errors import EngineRefused
from replay.versions import VersionSpan

PATH = "/v1/completions"

Likeliest = tuple[tuple[int, float], ...]
"""The likeliest ids at one place, each with its logprob, likeliest first."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A piece of a completion. `ids` and `logprobs` (natural log) are aligned, one per sampled token.

    `finish` is set where it ends: stop, length or abort; `stop_reason` is then the stop string or stop id that ended
    it, None for the end-of-sequence token. Only a piece with nothing but `cached_tokens` may follow.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str | None = None
    stop_reason: str | int | None = None
    cached_tokens: int = 0
    likeliest: tuple[Likeliest, ...] = ()
    """One per sampled token where `logprobs` of the parameters is above 0; else empty."""
    versions: tuple[VersionSpan, ...] = ()
    """Which weights sampled which tokens of the whole completion: with the last piece, of an engine that tells."""


Adapt = Callable[[dict[str, Any]], dict[str, Any]]
"""From another route's reply, or an event of it, to a completion's."""

as_it_is: Adapt = dict
"""The reply is of this very route."""


def request(model: str, prompt: list[int], params: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """The body of a call. `params` are sampling parameters in vLLM's words."""
    body = {
        **params, "model": model, "prompt": prompt, "logprobs": params.get("logprobs", 0),
        "return_token_ids": True, "stream": stream,
    }  # fmt: skip
    if body["logprobs"]:
        body["return_tokens_as_token_ids"] = True  # two tokens may have one text
    if stream:
        body["stream_options"] = {"include_usage": True}
    return body


def sampled(reply: dict[str, Any], adapt: Adapt = as_it_is) -> Sampled:
    """All that a reply which is not streamed holds. Raises EngineRefused for what is none."""
    try:
        reply = adapt(reply)
        return _piece(reply["choices"][0], reply.get("usage"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineRefused(502, f"vLLM sent what is no completion: {str(reply)[:200]}") from error


def event(data: bytes, adapt: Adapt = as_it_is) -> Sampled | None:
    """One event of a stream; None where it says nothing of the completion.

    Raises:
        EngineRefused: it is an error, or nothing that vLLM sends.
    """
    try:
        told = orjson.loads(data)
        if error := told.get("error"):
            described = error if isinstance(error, dict) else {"message": error}
            code = described.get("code")
            status = code if isinstance(code, int) and 400 <= code < 600 else 500
            raise EngineRefused(status, str(described.get("message", error)))
        told = adapt(told)
        # The last event has no choice, and the only account of what was cached.
        piece = _piece(told["choices"][0] if told["choices"] else {}, told.get("usage"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineRefused(502, f"vLLM sent what is no completion: {data[:200]!r}") from error
    return piece if piece.ids or piece.finish is not None or piece.cached_tokens else None


def _piece(choice: dict[str, Any], usage: dict[str, Any] | None) -> Sampled:
    ids = tuple(choice.get("token_ids") or ())
    if not all(type(number) is int and 0 <= number < 2**31 for number in ids):
        raise ValueError("token ids that are none")  # the row could not be written
    found = choice.get("logprobs") or {}
    logprobs = tuple(found.get("token_logprobs") or ())
    if None in logprobs:
        logprobs = ()  # not those of these ids: the turn is stored as untrainable
    if not all(isinstance(value, float | int) for value in logprobs):
        raise ValueError("logprobs that are none")
    details = (usage or {}).get("prompt_tokens_details") or {}
    return Sampled(
        ids,
        logprobs,
        choice.get("finish_reason"),
        choice.get("stop_reason"),
        int(details.get("cached_tokens") or 0),
        tuple(_likeliest(place) for place in found.get("top_logprobs") or () if place is not None),
        tuple(_span(span) for span in choice.get("weight_versions") or ()),
    )


def _likeliest(place: dict[str, float]) -> Likeliest:
    """One place of `top_logprobs`: ids as `token_id:7`, the sampled one among them whatever its rank.

    Without alternatives vLLM names the sampled token by its text, and there is nothing to tell.
    """
    ids = [(int(name.removeprefix(_TOKEN_ID)), value) for name, value in place.items() if name.startswith(_TOKEN_ID)]
    if any(number < 0 for number, _ in ids):
        raise ValueError("token ids that are none")
    return tuple(sorted(ids, key=lambda entry: -entry[1]))


def _span(told: dict[str, Any]) -> VersionSpan:
    span = VersionSpan(told["version"], told["start"], told["end"])
    if not isinstance(span.version, str) or type(span.start) is not int or type(span.end) is not int:
        raise ValueError("a span of weights that is none")
    return span


_TOKEN_ID = "token_id:"
