"""A hop between the gateway and vLLM that keeps what vLLM really said: the witness for T1.

It asks for one thing more than the gateway does: that vLLM says which prompt it saw.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from aiohttp import web


@dataclass
class Completion:
    """One answer of vLLM's: the prompt it was sent (with images: before it expands it), and all it sampled."""

    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    prompt_as_seen: list[int] | None = None
    """The prompt ids that vLLM reports."""


@dataclass
class Wiretap:
    """Forwards to `target` and notes completions, oldest first."""

    target: str
    completions: list[Completion] = field(default_factory=list)
    url: str = ""

    async def run(self) -> AsyncIterator[Wiretap]:
        """Listen on a free loopback port while iterated."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
            self._http = http
            app = web.Application(client_max_size=1 << 30)
            app.router.add_route("*", "/{path:.*}", self._forward)
            runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            assert site._server is not None
            self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
            try:
                yield self
            finally:
                await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.path == "/inference/v1/generate":
            body = orjson.dumps({**orjson.loads(body), "return_token_ids": True})
        headers = {"content-type": request.content_type}
        async with self._http.request(
            request.method, self.target + request.path_qs, data=body, headers=headers
        ) as reply:
            response = web.StreamResponse(status=reply.status, headers={"content-type": reply.content_type})
            await response.prepare(request)
            raw = b""
            try:
                async for chunk in reply.content.iter_any():
                    raw += chunk
                    await response.write(chunk)
            finally:  # the gateway may hang up once it has all it wants
                if request.path in ("/v1/completions", "/inference/v1/generate") and reply.status == 200:
                    self._note(orjson.loads(body), raw)
            await response.write_eof()
        return response

    def _note(self, asked: dict[str, Any], raw: bytes) -> None:
        prompt = asked["token_ids"] if "token_ids" in asked else asked["prompt"]
        if isinstance(prompt[0], list) or asked.get("sampling_params") == {"logprobs": 0, "max_tokens": 1}:
            return  # the start-up checks
        completion = Completion(prompt)
        if asked["stream"]:
            lines = [line[5:].strip() for line in raw.splitlines() if line.startswith(b"data:")]
            events = [orjson.loads(line) for line in lines if line != b"[DONE]"]
        else:
            events = [orjson.loads(raw)]
        for event in events:
            completion.prompt_as_seen = completion.prompt_as_seen or event.get("prompt_token_ids")
            for choice in event["choices"]:
                completion.ids += choice["token_ids"]
                logprobs = choice["logprobs"]
                if "content" in logprobs:
                    completion.logprobs += [place["logprob"] for place in logprobs["content"]]
                else:
                    completion.logprobs += logprobs["token_logprobs"]
                completion.prompt_as_seen = completion.prompt_as_seen or choice.get("prompt_token_ids")
        self.completions.append(completion)
