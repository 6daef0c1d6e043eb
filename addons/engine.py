"""The vLLM client: one sampling at a time, its token ids and logprobs as they come.

Only vLLM's `/v1/completions` with prompt ids is used. The text it returns is ignored: prompt ids that end
inside a character can make it repeat the prompt, and stop strings are cut by rules of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from addons.errors import EngineMismatch, EngineRefused, EngineUnavailable

STREAM_LIMIT = 1 << 26
"""Longest SSE line we read, bytes: vLLM's first one repeats the prompt's ids, 7 bytes a token."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a running vLLM says of itself."""

    model: str
    root: str
    window: int
    """Longest prompt + completion, tokens."""
    reports_weights: bool
    """True when `/weight_info` answers (VLLM_SERVER_DEV_MODE=1)."""


Likeliest = tuple[tuple[int, float], ...]
"""The likeliest ids at one place, each with its logprob, likeliest first."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A piece of a completion. `ids` and `logprobs` (natural log) are aligned, one per sampled token.

    `finish` is set in the last piece only: stop, length or abort; `stop_reason` is then the stop string or
    stop id that ended it, None for the end-of-sequence token.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str | None = None
    stop_reason: str | int | None = None
    cached_tokens: int = 0
    likeliest: tuple[Likeliest, ...] = ()
    """One per sampled token where `logprobs` of the parameters is above 0; else empty."""


class Engine:
    """A client of one vLLM server. Errors are :class:`~addons.errors.CallError`, ready for a dialect."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self._http = http

    async def facts(self) -> EngineFacts:
        """Ask the server what it serves.

        Raises:
            EngineUnavailable: it does not answer or has no model yet.
        """
        listing = await self._get("/v1/models")
        if not isinstance(listing, dict) or not isinstance(listing.get("data"), list):
            raise EngineMismatch(f"what answers at {self.url} is no vLLM: its /v1/models is {str(listing)[:200]}")
        models = [m for m in listing["data"] if not m.get("parent")]
        if not models:
            raise EngineUnavailable(f"vLLM at {self.url} lists no model yet")
        model = models[0]
        if not isinstance(model.get("max_model_len"), int):
            raise EngineMismatch(
                f"what answers at {self.url} is no vLLM: its model {model.get('id')!r} has no max_model_len"
            )
        try:
            await self._get("/weight_info")
            reports = True
        except EngineRefused:
            reports = False
        return EngineFacts(model["id"], model.get("root") or model["id"], int(model["max_model_len"]), reports)

    async def weight_version(self, facts: EngineFacts) -> str | None:
        """The version of the weights now loaded, None when this server cannot tell."""
        if not facts.reports_weights:
            return None
        version = (await self._get("/weight_info")).get("weight_version")
        return None if version is None else str(version)

    async def tokenize(self, facts: EngineFacts, text: str) -> list[int]:
        """The served model's ids of a text, no special tokens added."""
        body = {"model": facts.model, "prompt": text, "add_special_tokens": False}
        tokens: list[int] = (await self._post_json("/tokenize", body))["tokens"]
        return tokens

    async def verify_logprobs(self, facts: EngineFacts, ids: list[int]) -> None:
        """Prove T5: logprobs must be those of the distribution sampled from.

        With top_k=1 that distribution has one token, so its logprob is 0; a server that reports raw
        logprobs answers something below. Several one-token prompts are tried since a raw 0 can be chance.

        Raises:
            EngineMismatch: raw logprobs, or no token ids in replies.
        """
        body = {
            "model": facts.model, "prompt": [[i] for i in ids], "max_tokens": 1, "temperature": 1.0, "top_k": 1,
            "logprobs": 0, "return_token_ids": True,
        }  # fmt: skip
        reply = await self._post_json("/v1/completions", body)
        for choice in reply["choices"]:
            if not choice.get("token_ids") or not choice.get("logprobs"):
                raise EngineMismatch(f"vLLM at {self.url} returns no token_ids: harnesstap needs vLLM 0.11 or newer")
            if choice["logprobs"]["token_logprobs"][0] < -1e-3:
                raise EngineMismatch(
                    f"vLLM at {self.url} reports raw logprobs; start it with --logprobs-mode processed_logprobs "
                    "(`trainer serve` does), or training would see the wrong distribution"
                )

    async def sample(
        self, facts: EngineFacts, prompt: list[int], params: dict[str, Any], *, stream: bool
    ) -> AsyncGenerator[Sampled]:
        """Sample one completion.

        Args:
            facts: of this server.
            prompt: token ids.
            params: sampling parameters in vLLM's words, `max_tokens` included.
            stream: yield pieces as they are sampled; otherwise one piece.

        Closing the iterator (or cancelling the task) drops the connection, at which vLLM aborts the request.
        """
        body = {
            **params, "model": facts.model, "prompt": prompt, "logprobs": params.get("logprobs", 0),
            "return_token_ids": True, "stream": stream,
        }  # fmt: skip
        if body["logprobs"]:
            body["return_tokens_as_token_ids"] = True  # two tokens may have one text
        if stream:
            body["stream_options"] = {"include_usage": True}
            async for piece in self._stream(body):
                yield piece
            return
        reply = await self._post_json("/v1/completions", body)
        try:
            piece = _piece(reply["choices"][0], reply.get("usage"))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise EngineRefused(502, f"vLLM sent what is no completion: {str(reply)[:200]}") from error
        yield piece

    async def _stream(self, body: dict[str, Any]) -> AsyncGenerator[Sampled]:
        finished = False
        try:
            async with self._http.post(self.url + "/v1/completions", data=orjson.dumps(body), **_JSON) as reply:
                await _raise_for(reply)
                while line := await reply.content.readline(max_line_length=STREAM_LIMIT):
                    # Read to the end of the body behind [DONE], or the connection could not be used again.
                    if not line.startswith(b"data:") or (data := line[5:].strip()) == b"[DONE]":
                        continue
                    piece = _event(data)
                    if piece is not None:
                        finished = finished or piece.finish is not None
                        yield piece
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise EngineUnavailable(f"vLLM at {self.url} went away: {error or type(error).__name__}") from error
        if not finished:
            raise EngineUnavailable(f"vLLM at {self.url} ended the stream without a finish reason")

    async def _get(self, path: str) -> dict[str, Any]:
        return await self._json("GET", path, None)

    async def _post_json(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._json("POST", path, orjson.dumps(body))

    async def _json(self, method: str, path: str, data: bytes | None) -> dict[str, Any]:
        try:
            async with self._http.request(method, self.url + path, data=data, **_JSON) as reply:
                await _raise_for(reply)
                raw = await reply.read()
                try:
                    parsed: dict[str, Any] = orjson.loads(raw)
                except orjson.JSONDecodeError as error:
                    raise EngineRefused(
                        502, f"vLLM at {self.url} answers {path} with no JSON: {raw[:200]!r}"
                    ) from error
                return parsed
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise EngineUnavailable(f"vLLM at {self.url} does not answer: {error or type(error).__name__}") from error


def _event(data: bytes) -> Sampled | None:
    """One event of a stream; None where it says nothing of the completion.

    Raises:
        EngineRefused: it is an error, or nothing that vLLM sends.
    """
    try:
        event = orjson.loads(data)
        if error := event.get("error"):
            described = error if isinstance(error, dict) else {"message": error}
            code = described.get("code")
            raise EngineRefused(code if isinstance(code, int) else 500, str(described.get("message", error)))
        if not event["choices"]:
            return None
        piece = _piece(event["choices"][0], event.get("usage"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineRefused(502, f"vLLM sent what is no completion: {data[:200]!r}") from error
    return piece if piece.ids or piece.finish is not None else None


_JSON: dict[str, Any] = {"headers": {"content-type": "application/json"}}


async def _raise_for(reply: aiohttp.ClientResponse) -> None:
    if reply.status < 400:
        return
    text = await reply.text(errors="replace")
    try:
        parsed = orjson.loads(text)
        message = str((parsed.get("error") or parsed).get("message") or text)
    except (orjson.JSONDecodeError, AttributeError):
        message = text[:2000]
    retry = reply.headers.get("retry-after", "")
    if reply.status == 503:
        raise EngineUnavailable(f"vLLM is not ready: {message}")
    raise EngineRefused(reply.status, message, retry_after=int(retry) if retry.isdigit() else None)


def _piece(choice: dict[str, Any], usage: dict[str, Any] | None) -> Sampled:
    ids = tuple(choice.get("token_ids") or ())
    found = choice.get("logprobs") or {}
    logprobs = tuple(found.get("token_logprobs") or ())
    if None in logprobs:
        logprobs = ()  # not those of these ids: the turn is stored as untrainable
    details = (usage or {}).get("prompt_tokens_details") or {}
    return Sampled(
        ids,
        logprobs,
        choice.get("finish_reason"),
        choice.get("stop_reason"),
        int(details.get("cached_tokens") or 0),
        tuple(_likeliest(place) for place in found.get("top_logprobs") or () if place is not None),
    )


def _likeliest(place: dict[str, float]) -> Likeliest:
    """One place of `top_logprobs`: ids as `token_id:7`, the sampled one among them whatever its rank.

    Without alternatives vLLM names the sampled token by its text, and there is nothing to tell.
    """
    ids = [(int(name.removeprefix(_TOKEN_ID)), value) for name, value in place.items() if name.startswith(_TOKEN_ID)]
    return tuple(sorted(ids, key=lambda entry: -entry[1]))


_TOKEN_ID = "token_id:"
