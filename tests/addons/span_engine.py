"""A scripted vLLM that was started with `--enable-scale-out`: it tells which weights sampled which tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from tests.scripted_engine import ScriptedEngine


@dataclass
class SpanEngine(ScriptedEngine):
    """Each token is sampled by the version that is loaded when its piece is sent. `generated` keeps the bodies."""

    generated: list[dict[str, Any]] = field(default_factory=list)
    says: list[dict[str, Any]] | None = None
    """What it tells in place of the truth."""

    def add_routes(self, app: web.Application) -> None:
        """The route of `--enable-scale-out`."""
        app.router.add_post("/inference/v1/generate", self._generate)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if body["sampling_params"] == {"logprobs": 0, "max_tokens": 1}:  # the start-up probe
            return web.json_response({"choices": [self._told([1], "length", [self.weight_version])]})
        self.generated.append(body)
        script = self.scripts.pop(0)
        ids: list[int] = []
        versions: list[str] = []
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        if body["stream"]:
            await response.prepare(request)
        for index, piece in enumerate(script.pieces):
            if script.before is not None:
                await script.before(index)
            ids += piece
            versions += [self.weight_version] * len(piece)
            if body["stream"]:
                last = index == len(script.pieces) - 1
                choice = self._told(list(piece), script.finish if last else None, versions if last else None)
                await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
        if not body["stream"]:
            return web.json_response({"choices": [self._told(ids, script.finish, versions)]})
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _told(self, ids: list[int], finish: str | None, versions: list[str] | None) -> dict[str, Any]:
        content = [{"token_id": i, "logprob": self.logprob, "rank": 1, "top_logprobs": []} for i in ids]
        return {
            "index": 0, "token_ids": ids, "finish_reason": finish, "stop_reason": None,
            "logprobs": {"content": content}, "weight_versions": versions and (self.says or _spans(versions)),
        }  # fmt: skip


def _spans(versions: list[str]) -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = []
    for at, version in enumerate(versions):
        if not spans or spans[-1]["version"] != version:
            spans.append({"version": version, "start": at, "end": at})
        spans[-1]["end"] = at + 1
    return spans
