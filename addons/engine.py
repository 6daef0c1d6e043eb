"""The vLLM client: one sampling at a time, its token ids and logprobs as they come.

Prompts go as token ids to vLLM's token-level `generate`, which tells which weights sampled which tokens, or to
`/v1/completions` where the server was started without it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from addons import completions, generate
from addons.completions import Sampled
from addons.errors import EngineMismatch, EngineRefused, EngineUnavailable
from addons.generate import Shown
from replay import codec

STREAM_LIMIT = 1 << 26
"""Longest SSE line we read, bytes: vLLM's first one repeats the prompt's ids, 7 bytes a token."""

ADAPTER = "policy"
"""The name under which `trainer serve --lora-rank` serves the adapter that is trained (trainer.adapters)."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a running vLLM says of itself."""

    model: str
    """The name to ask under: the adapter's where there is one, over the base model that the rest is about."""
    root: str
    window: int
    """Longest prompt + completion, tokens."""
    reports_weights: bool
    """True when `/weight_info` answers (VLLM_SERVER_DEV_MODE=1)."""
    reports_spans: bool = False
    """True when `generate` is there (--enable-scale-out) and says which weights sampled which tokens."""


class Engine:
    """A client of one vLLM server. Errors are :class:`~addons.errors.CallError`, ready for a dialect."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self._http = http
        self.heard_at = float("-inf")
        """When it last answered, by the monotonic clock, seconds."""

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
        adapted = any(m.get("id") == ADAPTER and m.get("parent") == model["id"] for m in listing["data"])
        name = ADAPTER if adapted else model["id"]
        spans = await self._reports_spans(name)
        return EngineFacts(name, model.get("root") or model["id"], int(model["max_model_len"]), reports, spans)

    async def _reports_spans(self, model: str) -> bool:
        prompt = [0]
        body = generate.request(model, Shown(prompt), {"max_tokens": 1}, stream=False)
        try:
            reply = await self._post_json(generate.PATH, body)
        except EngineRefused as error:
            if error.status == 404:
                return False
            raise
        return bool(completions.sampled(reply, generate.adapter(prompt)).versions)

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

    async def tokenize_chat(self, facts: EngineFacts, messages: list[dict[str, Any]]) -> list[int] | None:
        """The served model's ids of a conversation, generation prompt included; None where it has no chat template."""
        try:
            reply = await self._post_json("/tokenize", {"model": facts.model, "messages": messages})
        except EngineRefused as error:
            if "chat template" in error.message:
                return None
            raise
        tokens: list[int] = reply["tokens"]
        return tokens

    async def chat_template(self) -> str | None:
        """The served model's chat template, Jinja source; None where the server does not tell.

        It does with `--enable-tokenizer-info-endpoint`.
        """
        try:
            template = (await self._get("/tokenizer_info")).get("chat_template")
        except EngineRefused:
            return None
        return template if isinstance(template, str) else None

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
        reply = await self._post_json(completions.PATH, body)
        for choice in reply["choices"]:
            if not choice.get("token_ids") or not choice.get("logprobs"):
                raise EngineMismatch(f"vLLM at {self.url} returns no token_ids: harnesstap needs vLLM 0.11 or newer")
            if choice["logprobs"]["token_logprobs"][0] < -1e-3:
                raise EngineMismatch(
                    f"vLLM at {self.url} reports raw logprobs; start it with --logprobs-mode processed_logprobs "
                    "(`trainer serve` does), or training would see the wrong distribution"
                )

    async def expansion(self, facts: EngineFacts, url: str) -> list[int]:
        """The placeholder ids that an image, a `data:` URL, has in a prompt.

        Raises:
            EngineRefused: 400, it is no image, or the model takes none; 404, this server does not say.
        """
        said = [{"type": "text", "text": "U"}, {"type": "image_url", "image_url": {"url": url}}]
        body = {"model": facts.model, "messages": [{"role": "user", "content": said}], "mm_payload": "none"}
        reply = await self._post_json("/v1/chat/completions/render", body)
        try:
            [place] = reply["features"]["mm_placeholders"]["image"]
            ids: list[int] = reply["token_ids"][place["offset"] : place["offset"] + place["length"]]
        except (KeyError, TypeError, ValueError) as error:
            raise EngineRefused(502, f"vLLM does not say what it makes of an image: {str(reply)[:200]}") from error
        return ids

    async def expanded(self, facts: EngineFacts, shown: Shown) -> tuple[list[int], list[tuple[int, int]]]:
        """A prompt with images as vLLM expands it, and the offset and length of each image in it."""
        body = generate.request(facts.model, shown, {"max_tokens": 1}, stream=False)
        reply = await self._post_json(generate.PATH, body)
        try:
            return generate.places(reply)
        except (KeyError, TypeError, AttributeError) as error:
            raise EngineRefused(502, f"vLLM sent what is no generation: {str(reply)[:200]}") from error

    async def sample(
        self, facts: EngineFacts, prompt: list[int], params: dict[str, Any], *, stream: bool,
        shown: Shown | None = None,
    ) -> AsyncGenerator[Sampled]:  # fmt: skip
        """Sample one completion.

        Args:
            facts: of this server.
            prompt: token ids.
            params: sampling parameters in vLLM's words, `max_tokens` included.
            stream: yield pieces as they are sampled; otherwise one piece.
            shown: the prompt's images, with the prompt before vLLM expands it to `prompt`.

        Closing the iterator (or cancelling the task) drops the connection, at which vLLM aborts the request.

        Raises:
            EngineRefused: vLLM's own error, or what is no completion.
            EngineUnavailable: it went away.
            EngineMismatch: it expanded the images to another prompt.
        """
        if shown is None and facts.reports_spans:
            shown = Shown(prompt)
        path, adapt = completions.PATH, completions.as_it_is
        if shown is None:
            body = completions.request(facts.model, prompt, params, stream=stream)
        else:
            path, adapt = generate.PATH, generate.adapter(prompt)
            body = generate.request(facts.model, shown, params, stream=stream)
        data = await asyncio.to_thread(codec.dumps, body)  # megabytes, with images
        if stream:
            async for piece in self._stream(path, data, adapt):
                yield piece
            return
        yield completions.sampled(await self._json("POST", path, data), adapt)

    async def _stream(self, path: str, data: bytes, adapt: completions.Adapt) -> AsyncGenerator[Sampled]:
        finished = False
        try:
            async with self._http.post(self.url + path, data=data, **_JSON) as reply:
                await _raise_for(reply)
                while line := await reply.content.readline(max_line_length=STREAM_LIMIT):
                    self.heard_at = time.monotonic()
                    # Read to the end of the body behind [DONE], or the connection could not be used again.
                    if not line.startswith(b"data:") or (event := line[5:].strip()) == b"[DONE]":
                        continue
                    piece = completions.event(event, adapt)
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
        return await self._json("POST", path, codec.dumps(body))

    async def _json(self, method: str, path: str, data: bytes | None) -> dict[str, Any]:
        try:
            async with self._http.request(method, self.url + path, data=data, **_JSON) as reply:
                await _raise_for(reply)
                raw = await reply.read()
                self.heard_at = time.monotonic()
                try:
                    parsed: dict[str, Any] = orjson.loads(raw)
                except orjson.JSONDecodeError as error:
                    raise EngineRefused(
                        502, f"vLLM at {self.url} answers {path} with no JSON: {raw[:200]!r}"
                    ) from error
                return parsed
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise EngineUnavailable(f"vLLM at {self.url} does not answer: {error or type(error).__name__}") from error


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
