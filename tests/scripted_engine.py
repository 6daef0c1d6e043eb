"""A vLLM that says what a test tells it to: the same HTTP, no model. For tests of speed and of rare events.

It samples nothing: a script gives the token ids of each completion, in pieces, and hooks can hold a piece back,
fail or drop the connection. What it reports (ids, logprobs, finish, stop reason) has the form of vLLM 0.32.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from addons.model import ModelFiles


@dataclass
class Script:
    """One completion: `pieces` are the ids of each streamed chunk."""

    pieces: Sequence[Sequence[int]]
    finish: str = "stop"
    stop_reason: str | int | None = None
    status: int = 200
    """Another status answers an error instead."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of that error."""
    before: Callable[[int], Awaitable[None]] | None = None
    """Awaited before piece i is sent."""
    die_after: int | None = None
    """Drop the connection after this many pieces."""
    garbage: bytes | None = None
    """Sent in place of everything else, as an SSE line or as the body."""


@dataclass
class ScriptedEngine:
    """Serves scripts in order; `requests` keeps the bodies it was sent."""

    model: ModelFiles
    window: int = 32768
    name: str = "scripted"
    root: str = ""
    """Where it says that it loaded its model from; the model's folder if empty."""
    logprob: float = -0.25
    raw_logprobs: bool = False
    weight_version: str = "0"
    likeliest: Callable[[Sequence[int], int], list[dict[str, float]]] | None = None
    """What `top_logprobs` says of sampled ids when that many alternatives are asked for."""
    template: str | None = None
    """The chat template it was started with; None for the model's own, empty where there is none."""
    shows_template: bool = False
    """Started with `--enable-tokenizer-info-endpoint`."""
    asked: int = 0
    """Times it was asked for facts."""
    scripts: list[Script] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    aborted: int = 0
    url: str = ""

    def say(self, text: str, *, size: int = 1, end: str | None = "<|im_end|>", **more: Any) -> Script:
        """Queue a completion that reads `text`, in pieces of `size` tokens, then the end-of-turn token."""
        ids = self.encode(text + (end or ""))
        script = Script([ids[i : i + size] for i in range(0, len(ids), size)], **more)
        self.scripts.append(script)
        return script

    def encode(self, text: str) -> list[int]:
        """Token ids; special tokens in the text are special."""
        ids: list[int] = self.model.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, script: Script, pieces: int) -> str:
        """The text of a script's first pieces."""
        return str(self.model.tokenizer.decode([i for piece in script.pieces[:pieces] for i in piece]))

    async def run(self) -> AsyncIterator[ScriptedEngine]:
        """Listen on a free loopback port while iterated."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/weight_info", self._weights)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/tokenizer_info", self._tokenizer_info)
        app.router.add_post("/v1/completions", self._complete)
        self.add_routes(app)
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

    def add_routes(self, app: web.Application) -> None:
        """More routes, of a kind of server that has them."""

    async def _models(self, _: web.Request) -> web.Response:
        self.asked += 1
        card = {
            "id": self.name,
            "root": self.root or str(self.model.path),
            "parent": None,
            "max_model_len": self.window,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def _weights(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.weight_version})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "prompt" in body:
            return web.json_response({"tokens": self.encode(body["prompt"])})
        if self.template == "":
            error = {"message": "you must provide a chat template if the tokenizer does not define one", "code": 400}
            return web.json_response({"error": error}, status=400)
        said = self.model.tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, tokenize=False, chat_template=self.template
        )
        return web.json_response({"tokens": self.encode(str(said))})

    async def _tokenizer_info(self, _: web.Request) -> web.Response:
        if not self.shows_template:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"chat_template": self.template or self.model.template})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if isinstance(body["prompt"][0], list):  # the start-up check of logprobs
            value = -1.5 if self.raw_logprobs else 0.0
            choices = [self._choice([p[0]], "length", None) for p in body["prompt"]]
            for choice in choices:
                choice["logprobs"]["token_logprobs"] = [value]
            return web.json_response({"choices": choices})
        self.requests.append(body)
        script = self.scripts.pop(0)
        if script.status != 200:
            error = {"error": {"message": "scripted refusal", "code": script.status}}
            return web.json_response(error, status=script.status, headers=script.headers)
        if script.garbage is not None:
            data = b"data: " + script.garbage + b"\n\n" if body["stream"] else script.garbage
            return web.Response(body=data, content_type="text/event-stream")
        if body["model"] != self.name:
            return web.json_response({"error": {"message": f"no model {body['model']}"}}, status=404)
        try:
            if body["stream"]:
                return await self._streamed(request, body, script)
            for index in range(len(script.pieces)):
                if script.before is not None:
                    await script.before(index)
                if script.die_after == index:
                    assert request.transport is not None
                    request.transport.abort()
                    await asyncio.sleep(3600)
            ids = [i for piece in script.pieces for i in piece]
            choice = self._choice(ids, script.finish, script.stop_reason)
            self._add_likeliest(choice, body)
            return web.json_response({"choices": [choice], "usage": self._usage(body, ids)})
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise

    async def _streamed(self, request: web.Request, body: dict[str, Any], script: Script) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        sent: list[int] = []
        for index, piece in enumerate(script.pieces):
            if script.before is not None:
                await script.before(index)
            if script.die_after == index:
                assert request.transport is not None
                request.transport.abort()
                raise ConnectionResetError
            last = index == len(script.pieces) - 1
            sent.extend(piece)
            choice = self._choice(list(piece), script.finish if last else None, script.stop_reason if last else None)
            self._add_likeliest(choice, body)
            await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
        await response.write(b"data: " + orjson.dumps({"choices": [], "usage": self._usage(body, sent)}) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _choice(self, ids: list[int], finish: str | None, stop_reason: str | int | None) -> dict[str, Any]:
        return {
            "index": 0, "text": "IGNORE ME", "token_ids": ids, "finish_reason": finish, "stop_reason": stop_reason,
            "logprobs": {"token_logprobs": [self.logprob] * len(ids)},
        }  # fmt: skip

    def _add_likeliest(self, choice: dict[str, Any], body: dict[str, Any]) -> None:
        if body["logprobs"] and self.likeliest is not None:
            choice["logprobs"]["top_logprobs"] = self.likeliest(choice["token_ids"], body["logprobs"])

    def _usage(self, body: dict[str, Any], ids: list[int]) -> dict[str, Any]:
        return {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(ids)}
