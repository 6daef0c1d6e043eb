"""The answer to one call as it goes on the wire, whatever carries it: from the read request to its last byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from addons.calls import Calls
from addons.conversation import Message, Reply, Usage
from addons.decode import Vocabulary
from addons.dialects.base import Emitter, Logprobs
from addons.errors import CallError
from addons.request import Request
from addons.turn import Listener, LiveTurn


class Answer:
    """One call's answer.

    Args:
        calls: places the call and keeps its record.
        request: the call.
        keepalive: seconds of silence after which a streaming harness gets its provider's keep-alive.
    """

    def __init__(self, calls: Calls, request: Request, keepalive: float) -> None:
        self._calls = calls
        self._request = request
        self._keepalive = keepalive

    @property
    def content_type(self) -> str:
        """The media type of the chunks."""
        return self._emitter().content_type if self._request.call.stream else "application/json"

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The answer piece by piece: as it is sampled, or in one piece for a call that does not stream.

        Close it when the harness has left: with the last that listens the sampling ends. Asking on after the last
        piece says that this one was handed over.

        Raises:
            CallError: before anything was said, so that it can still have its own status.
        """
        request = self._request
        if not request.call.generate or request.call.sampling.max_tokens == 0:
            yield await self._unsampled()
            return
        try:
            turn = await self._calls.begin(request)
        except CallError as error:
            refusal = request.dialect.refusal_in_stream(self._emitter(), error)
            if refusal is None:
                raise
            yield refusal
            return
        emitter = self._emitter(turn)
        with Listener(turn) as listener:
            said = self._streamed if request.call.stream else self._whole
            async with aclosing(said(turn, listener, emitter)) as chunks:
                async for chunk in chunks:
                    yield chunk
        if turn.error is None:
            self._calls.delivered(turn)

    async def _whole(self, turn: LiveTurn, listener: Listener, emitter: Emitter) -> AsyncGenerator[bytes]:
        while not turn.over:
            await listener.hear(None)
        if turn.error is not None:
            raise turn.error
        assert turn.reply is not None
        yield emitter.whole(turn.reply, _logprobs(turn, listener))

    async def _streamed(self, turn: LiveTurn, listener: Listener, emitter: Emitter) -> AsyncGenerator[bytes]:
        started = False
        while True:
            deltas = await listener.hear(self._keepalive)
            if turn.error is not None and not started:
                raise turn.error
            if not started:
                started = True
                yield emitter.start(len(turn.prompt))
            if deltas is None:
                yield emitter.silence()
            elif deltas:
                # Asked-for logprobs ride on the first delta: tokens and deltas do not line up.
                yield b"".join(emitter.delta(delta, _logprobs(turn, listener)) for delta in deltas)
            if turn.over:
                break
        if turn.error is not None:
            yield emitter.fail(turn.error)
            return
        assert turn.reply is not None
        yield emitter.finish(turn.reply, _logprobs(turn, listener))

    async def _unsampled(self) -> bytes:
        """The answer to a call for no token at all. It is no turn."""
        request, emitter = self._request, self._emitter()
        if not request.call.generate:  # Responses' warm-up, which a later call continues
            assert request.dialect.unsampled is not None, request.dialect.name
            self._calls.remember(request)
            return request.dialect.unsampled(emitter)
        # It only fills the provider's cache: vLLM's fills itself.
        prompt_tokens = await self._calls.count(request.caller, request.call)
        reply = Reply(Message("assistant"), "length", Usage(prompt_tokens, 0))
        if not request.call.stream:
            return emitter.whole(reply)
        return emitter.start(prompt_tokens) + emitter.finish(reply)

    def _emitter(self, turn: LiveTurn | None = None) -> Emitter:
        """Writes the reply, of `turn` once there is one: a retry gets the very reply of the call it joined."""
        request = self._request
        if turn is None:
            return request.dialect.emitter(request.call, request.reply_id, int(request.received_at))
        return request.dialect.emitter(request.call, turn.reply_id, int(turn.received_at))


def _logprobs(turn: LiveTurn, listener: Listener) -> Logprobs:
    """Logprobs of the sampled tokens that were not answered yet; None when nobody asked, or there are none.

    Like the provider's, without the end-of-turn token, which is no part of the content.
    """
    if not turn.call.options.get("logprobs"):
        return None
    vocabulary, most = turn.model.parser.vocabulary, turn.call.top_logprobs
    said = [
        _spelled(vocabulary, token, logprob)
        | {"top_logprobs": [_spelled(vocabulary, *entry) for entry in likeliest[:most]]}
        for token, logprob, likeliest in listener.unreported()
    ]
    return said or None


def _spelled(vocabulary: Vocabulary, token: int, logprob: float) -> dict[str, Any]:
    """One token of OpenAI's `logprobs`; its text has U+FFFD where the bytes are no whole characters."""
    spelling = vocabulary.spelling(token)
    return {"token": spelling.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(spelling)}
