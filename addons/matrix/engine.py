"""vLLM's HTTP over a script instead of a model: what it "samples" is the text that a function of the prompt returns.

The ids, logprobs and finish reasons have the form of vLLM's, so that everything before it (gateway, record, trainer)
works as with a real one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from addons.matrix.model import END, START
from addons.model import ModelFiles

logger = logging.getLogger(__name__)

WINDOW = 1 << 20
"""Tokens, here bytes: room for the longest prompt of any harness."""
_TOOLS = re.compile(r"<tools>\n((?:\{.*\}\n)+)</tools>")
"""The list of tools in the first system message."""
_LOGPROB = -0.25
_PIECE = 16


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is shown, read back from its ids.

    `tools` are as the template writes them (`{"type": "function", "function": {...}}` as a rule), `messages` pairs of
    role and text; `constraint` is vLLM's `structured_outputs`, None when the model is free.
    """

    tools: Sequence[dict[str, Any]]
    messages: Sequence[tuple[str, str]]
    constraint: dict[str, Any] | None = None


Script = Callable[[Prompt], str]
"""What the model says to a prompt, in its own markup, without the token that ends the turn."""


class ScriptedEngine:
    """Answers completions of `model` with what `script` says.

    The model's template must be ChatML that lists tools as Qwen's do: the one of
    :func:`addons.matrix.model.write_model`, or a published one. `window` is the longest prompt and completion, in
    tokens, that it claims to take. Where the script raises, the answer is an error 500 that names the exception.
    """

    def __init__(self, model: ModelFiles, script: Script, window: int = WINDOW) -> None:
        self._model = model
        self._script = script
        self._window = window
        self._start = model.tokenizer.convert_tokens_to_ids(START)

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[str]:
        """Listen on a loopback port, 0 for a free one; yields the address. Raises OSError when the port is taken."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/weight_info", self._weights)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/completions", self._complete)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    def read(self, ids: Sequence[int], constraint: dict[str, Any] | None = None) -> Prompt:
        """The prompt that `ids` are. Text that only looks like a special token starts no message: it has other ids."""
        messages: list[tuple[str, str]] = []
        tools: list[dict[str, Any]] = []
        starts = [at for at, number in enumerate(ids) if number == self._start]
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            text = str(self._model.tokenizer.decode(list(ids[start + 1 : end])))
            role, _, content = text.partition("\n")
            content = content.removesuffix("\n").removesuffix(END)
            if role == "system" and not messages and (listed := list(_TOOLS.finditer(content))):
                tools = [orjson.loads(line) for line in listed[-1][1].splitlines()]
                content = content[: listed[-1].start()].rstrip()
            messages.append((role, content))
        return Prompt(tools, messages[:-1], constraint)  # the last is the reply to come

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        card = {"id": "scripted", "root": str(self._model.path), "parent": None, "max_model_len": self._window}
        return web.json_response({"object": "list", "data": [card]})

    async def _weights(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": "0"})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "messages" in body:
            error = {"error": {"message": "it has no chat template of its own", "code": 400}}
            return web.json_response(error, status=400)
        return web.json_response({"tokens": self._encode(body["prompt"])})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if isinstance(body["prompt"][0], list):  # the check at start-up that logprobs are those sampled from
            return web.json_response({"choices": [_choice([prompt[0]], "length", 0.0) for prompt in body["prompt"]]})
        prompt = self.read(body["prompt"], body.get("structured_outputs"))
        try:
            said = self._encode(self._script(prompt) + END)
        except Exception as error:  # whatever a script of the user's raises
            logger.exception("the script raised")
            message = f"the script raised {type(error).__name__}: {error}"
            return web.json_response({"error": {"message": message, "code": 500}}, status=500)
        ids = said[: body["max_tokens"]]
        finish = "stop" if len(ids) == len(said) else "length"
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(ids)}
        if not body["stream"]:
            return web.json_response({"choices": [_choice(ids, finish)], "usage": usage})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for start in range(0, len(ids), _PIECE):
            last = start + _PIECE >= len(ids)
            event = {"choices": [_choice(ids[start : start + _PIECE], finish if last else None)]}
            await response.write(b"data: " + orjson.dumps(event) + b"\n\n")
        await response.write(b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n")
        await response.write_eof()
        return response

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._model.tokenizer.encode(text, add_special_tokens=False)
        return ids


def _choice(ids: Sequence[int], finish: str | None, logprob: float = _LOGPROB) -> dict[str, Any]:
    return {
        "index": 0, "text": "", "token_ids": list(ids), "finish_reason": finish, "stop_reason": None,
        "logprobs": {"token_logprobs": [logprob] * len(ids)},
    }  # fmt: skip
