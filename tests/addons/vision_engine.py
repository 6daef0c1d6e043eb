"""A scripted vLLM that takes images as vLLM 0.32 does, for tests without one: each becomes tokens by its bytes."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from tests.scripted_engine import Script, ScriptedEngine


@dataclass
class VisionEngine(ScriptedEngine):
    """`target` is the id that it expands. An image of n bytes is n % 5 + 2 tokens, the first and last not the target.

    Bytes that begin with "broken" are refused. `generated` keeps the bodies it was sent for prompts with images.
    """

    target: int = 0
    generated: list[dict[str, Any]] = field(default_factory=list)
    rendered: int = 0
    """Images it was asked about."""
    extra: int = 0
    """Tokens more that an image becomes when it is sampled after: a fault."""

    def add_routes(self, app: web.Application) -> None:
        """The routes of `--enable-scale-out`."""
        app.router.add_post("/v1/chat/completions/render", self._render)
        app.router.add_post("/inference/v1/generate", self._generate)

    def expansion(self, url: str) -> list[int]:
        data = base64.b64decode(url.partition(",")[2])
        if data.startswith(b"broken"):
            raise web.HTTPBadRequest(
                text='{"error": {"message": "cannot identify image file", "code": 400}}',
                content_type="application/json",
            )
        return [1, *[self.target] * (len(data) % 5), 2]

    async def _render(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.rendered += 1
        ids = self.expansion(body["messages"][0]["content"][1]["image_url"]["url"])
        places = {"image": [{"offset": 3, "length": len(ids)}]}
        return web.json_response({"token_ids": [7, 7, 7, *ids, 8], "features": {"mm_placeholders": places}})

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        urls = [part["url"] for part in body["content_parts"]]
        prompt: list[int] = []
        places = []
        for token in body["token_ids"]:
            if token == self.target and urls:
                ids = self.expansion(urls.pop(0)) + [1] * self.extra
                places.append({"offset": len(prompt), "length": len(ids)})
                prompt += ids
            else:
                prompt.append(token)
        if urls:
            return web.json_response({"error": {"message": "Failed to apply prompt replacement"}}, status=500)
        told = {"prompt_token_ids": prompt, "mm_placeholders": {"image": places}}
        if body["sampling_params"] == {"logprobs": 0, "max_tokens": 1}:  # the start-up probe
            return web.json_response({**told, "choices": [self._choice([1], "length", None)]})
        self.generated.append(body)
        script = self.scripts.pop(0)
        if not body["stream"]:
            ids = [token for piece in script.pieces for token in piece]
            return web.json_response({**told, "choices": [self._sampled(ids, script.finish)]})
        return await self._generated(request, script, told)

    async def _generated(self, request: web.Request, script: Script, told: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for index, piece in enumerate(script.pieces):
            last = index == len(script.pieces) - 1
            event = {"choices": [self._sampled(list(piece), script.finish if last else None)]}
            await response.write(b"data: " + orjson.dumps(event | (told if index == 0 else {})) + b"\n\n")
        await response.write(b'data: {"choices": []}\n\ndata: [DONE]\n\n')
        await response.write_eof()
        return response

    def _sampled(self, ids: list[int], finish: str | None) -> dict[str, Any]:
        content = [
            {"token_id": token, "logprob": self.logprob, "top_logprobs": [{"token_id": token, "logprob": self.logprob}]}
            for token in ids
        ]
        return {"token_ids": ids, "finish_reason": finish, "stop_reason": None, "logprobs": {"content": content}}
