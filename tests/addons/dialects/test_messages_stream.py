"""The emitter, read by the official SDK: a real client over a transport that answers with our bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, APIStatusError
from anthropic.types import ErrorResponse, RawMessageStreamEvent
from anthropic.types import Message as Reply_
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from addons.conversation import (
    Call,
    Conversation,
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    Reply,
    Sampling,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from addons.dialects.messages import Emitter, count_reply, error_body, read
from addons.errors import (
    BadRequest,
    CallError,
    ContextLengthExceeded,
    EngineRefused,
    EngineUnavailable,
    NotFound,
    PayloadTooLarge,
    Unsupported,
)
from tests.addons.dialects.speakers.messages import Messages
from tests.addons.kit import said

ASKED = Call(Conversation((Message("user", "hi"),)), Sampling(max_tokens=64), "claude-x", True)
ID = "msg_" + "a" * 24
SPEAKER = Messages()
USAGE = Usage(prompt=40, completion=9, cached=16, reasoning=3)
EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def emitter() -> Emitter:
    return Emitter(ASKED, ID, 0)


def streamed(deltas: Sequence[Delta], reply: Reply, *, pings: bool = False) -> bytes:
    out, writer = b"", emitter()
    out += writer.start(reply.usage.prompt)
    for delta in deltas:
        out += writer.silence() if pings else b""
        out += writer.delta(delta)
    return out + writer.finish(reply)


def events(wire: bytes) -> list[dict[str, Any]]:
    """The events on the wire, each checked to be one that the SDK knows."""
    assert wire.endswith(b"\n\n")
    found = []
    for chunk in wire.decode().split("\n\n")[:-1]:
        first, second = chunk.split("\n")
        data = json.loads(second.removeprefix("data: "))
        assert first == f"event: {data['type']}"
        if data["type"] not in ("ping", "error"):
            EVENTS.validate_python(data)
        found.append(data)
    return found


def client(status: int, body: bytes, content_type: str) -> Anthropic:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=body, headers={"content-type": content_type})

    transport = httpx2.MockTransport(answer)
    return Anthropic(api_key="k", max_retries=0, http_client=httpx2.Client(transport=transport))


def ask(of: Anthropic) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}


def by_sdk(wire: bytes) -> Reply_:
    """The message that the SDK puts together from a stream."""
    of = client(200, wire, Emitter.content_type)
    with of.messages.stream(**ask(of)) as stream:
        return stream.get_final_message()


def whole(reply: Reply) -> Reply_:
    """The message that the SDK reads from a whole reply, checked strictly."""
    body = emitter().whole(reply)
    Reply_.model_validate_json(body)
    of = client(200, body, "application/json")
    message: Reply_ = of.messages.create(**ask(of))
    return message


def plain(message: Reply_) -> dict[str, Any]:
    return message.model_dump(mode="json", exclude_none=True)


def check(deltas: Sequence[Delta], reply: Reply) -> list[dict[str, Any]]:
    """The stream is lawful, and adds up to the whole; returns the events."""
    reply = replace(reply, said=tuple(deltas))
    wire = streamed(deltas, reply)
    SPEAKER.wire(wire)
    assert SPEAKER.streamed(wire) == SPEAKER.whole(emitter().whole(reply))
    return events(wire)


CALL = ToolCallDelta(0, id="toolu_1", name="Bash")
ARGUMENTS = ToolCallDelta(0, '{"command": "ls"}')


def reply_of(deltas: Sequence[Delta], finish: Finish = "stop", stop_sequence: str | None = None) -> Reply:
    return Reply(said(deltas), finish, USAGE, stop_sequence)


@pytest.mark.parametrize(
    ("deltas", "finish", "blocks"),
    [
        ([TextDelta("he"), TextDelta("llo")], "stop", ["text"]),
        ([ReasoningDelta("a"), ReasoningDelta("b"), TextDelta("c")], "stop", ["thinking", "text"]),
        ([CALL, ARGUMENTS], "tool_calls", ["tool_use"]),
        ([TextDelta("t"), CALL, ARGUMENTS, TextDelta("u")], "tool_calls", ["text", "tool_use", "text"]),
        (
            [CALL, ARGUMENTS, ToolCallDelta(1, id="toolu_2", name="Bash"), ToolCallDelta(1, '{"command": "é"}')],
            "tool_calls",
            ["tool_use", "tool_use"],
        ),
        (
            [ReasoningDelta("a"), CALL, ARGUMENTS, ReasoningDelta("b")],
            "tool_calls",
            ["thinking", "tool_use", "thinking"],
        ),
        ([TextDelta(""), ReasoningDelta("")], "stop", []),
        ([], "stop", []),
        ([ReasoningDelta("a")], "length", ["thinking"]),
        ([ReasoningDelta("a"), TextDelta(""), ReasoningDelta("b")], "length", ["thinking"]),
    ],
)
def test_stream_and_whole_are_one_reply(deltas: list[Delta], finish: Finish, blocks: list[str]) -> None:
    found = check(deltas, reply_of(deltas, finish))
    assert [e["content_block"]["type"] for e in found if e["type"] == "content_block_start"] == blocks


_PIECE = st.one_of(
    st.builds(TextDelta, st.text(max_size=4)),
    st.builds(ReasoningDelta, st.text(max_size=4)),
    st.builds(lambda n: {"n": n}, st.integers()),  # a tool call
)


@settings(deadline=None, max_examples=60)
@given(st.lists(_PIECE, max_size=8), st.randoms(use_true_random=False))
def test_any_reply_streams_as_it_is_whole(pieces: list[Any], cut: Any) -> None:
    deltas: list[Delta] = []
    calls = 0
    for piece in pieces:
        if not isinstance(piece, dict):
            deltas.append(piece)
            continue
        text = json.dumps(piece)
        at = cut.randint(0, len(text))
        deltas += [ToolCallDelta(calls, id=f"toolu_{calls}", name="f"), ToolCallDelta(calls, text[:at])]
        deltas.append(ToolCallDelta(calls, text[at:]))
        calls += 1
    check(deltas, reply_of(deltas, "tool_calls" if calls else "stop"))


def test_without_an_order_the_whole_is_reasoning_text_calls() -> None:
    deltas: list[Delta] = [ReasoningDelta("r"), TextDelta("t"), CALL, ARGUMENTS]
    kept, lost = reply_of(deltas, "tool_calls"), replace(reply_of(deltas, "tool_calls"), said=tuple(deltas))
    assert emitter().whole(kept) == emitter().whole(lost)


@pytest.mark.parametrize(
    ("finish", "reason", "sequence"),
    [
        ("stop", "end_turn", None),
        ("length", "max_tokens", None),
        ("tool_calls", "tool_use", None),
        ("stop_sequence", "stop_sequence", "</done>"),
        ("abort", "end_turn", None),
    ],
)
def test_why_it_stopped(finish: Finish, reason: str, sequence: str | None) -> None:
    deltas = [TextDelta("x")]
    reply = reply_of(deltas, finish, "</done>")
    for message in (by_sdk(streamed(deltas, reply)), whole(reply)):
        assert (message.stop_reason, message.stop_sequence) == (reason, sequence)


def test_the_start_knows_the_prompt_and_the_end_corrects_it() -> None:
    found = events(streamed([TextDelta("x")], reply_of([TextDelta("x")])))
    start = found[0]["message"]
    assert start["id"] == ID
    assert (start["type"], start["role"], start["model"], start["content"]) == ("message", "assistant", "claude-x", [])
    assert (start["stop_reason"], start["stop_sequence"]) == (None, None)
    assert (start["usage"]["input_tokens"], start["usage"]["output_tokens"]) == (40, 0)
    assert start["usage"]["cache_read_input_tokens"] == start["usage"]["cache_creation_input_tokens"] == 0
    assert start["usage"]["cache_creation"] == {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    end = found[-2]["usage"]
    assert (end["input_tokens"], end["cache_read_input_tokens"], end["output_tokens"]) == (24, 16, 9)
    assert end["output_tokens_details"] == {"thinking_tokens": 3}
    usage = by_sdk(streamed([], reply_of([]))).usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == 40


def test_the_first_bytes_say_that_the_model_has_begun() -> None:
    assert [event["type"] for event in events(emitter().start(3))] == ["message_start", "ping"]


def test_silence_is_a_ping_wherever_it_falls() -> None:
    deltas: list[Delta] = [ReasoningDelta("r"), TextDelta("t"), CALL, ARGUMENTS]
    reply = replace(reply_of(deltas, "tool_calls"), said=tuple(deltas))
    pinged = streamed(deltas, reply, pings=True)
    assert pinged.count(b'event: ping\ndata: {"type":"ping"}\n\n') == 5
    assert plain(by_sdk(pinged)) == plain(by_sdk(streamed(deltas, reply)))


def test_each_thinking_block_is_signed_and_taken_back() -> None:
    deltas: list[Delta] = [ReasoningDelta("one"), TextDelta("t"), ReasoningDelta("two")]
    message = by_sdk(streamed(deltas, reply_of(deltas)))
    first, _, second = message.content
    assert first.type == second.type == "thinking"
    assert first.signature
    assert second.signature not in ("", first.signature)
    history = [{"role": "user", "content": "q"}, message.to_param(), {"role": "user", "content": "go"}]
    call = read({"model": "m", "max_tokens": 1, "messages": json.loads(TypeAdapter(Any).dump_json(history))})
    assert call.conversation.messages[1] == Message("assistant", "t", "onetwo")
    assert call.ignored_fields == ()


def test_an_error_in_mid_stream_is_the_last_event_and_raises() -> None:
    writer = emitter()
    wire = writer.start(3) + writer.delta(TextDelta("x")) + writer.fail(EngineUnavailable("gone"))
    assert events(wire)[-1] == {"type": "error", "error": {"type": "overloaded_error", "message": "gone"}}
    of = client(200, wire, Emitter.content_type)
    with pytest.raises(APIStatusError, match="gone"), of.messages.stream(**ask(of)) as stream:
        stream.get_final_message()
    with pytest.raises(AssertionError):
        writer.delta(TextDelta("y"))


@pytest.mark.parametrize(
    "misuse",
    [
        lambda e: e.delta(TextDelta("x")),
        lambda e: e.silence(),
        lambda e: e.finish(reply_of([])),
        lambda e: (e.start(1), e.start(1)),
        lambda e: (e.start(1), e.delta(ARGUMENTS)),
        lambda e: (e.start(1), e.delta(CALL), e.delta(TextDelta("x")), e.delta(ARGUMENTS)),
        lambda e: (e.start(1), e.delta(replace(CALL, index=1))),
        lambda e: (e.start(1), e.delta(CALL), e.delta(CALL)),
        lambda e: (e.start(1), e.finish(reply_of([])), e.finish(reply_of([]))),
        lambda e: (e.start(1), e.finish(reply_of([])), e.fail(NotFound("x"))),
    ],
)
def test_what_may_not_follow_raises(misuse: Any) -> None:
    with pytest.raises(AssertionError, match="messages emitter"):
        misuse(emitter())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadRequest("x"), "invalid_request_error"),
        (ContextLengthExceeded(10, 9), "invalid_request_error"),
        (PayloadTooLarge("x"), "request_too_large"),
        (NotFound("x"), "not_found_error"),
        (Unsupported("x"), "api_error"),
        (EngineUnavailable("x"), "overloaded_error"),
        (EngineRefused(401, "x"), "authentication_error"),
        (EngineRefused(429, "x"), "rate_limit_error"),
        (EngineRefused(422, "x"), "invalid_request_error"),
        (EngineRefused(500, "x"), "api_error"),
        (EngineRefused(529, "x"), "overloaded_error"),
    ],
)
def test_errors_have_the_providers_types(error: CallError, kind: str) -> None:
    body = error_body(error)
    assert body["error"]["type"] == kind
    if kind != "request_too_large":  # documented, but not in the SDK's union
        ErrorResponse.model_validate(body)
    of = client(error.status, json.dumps(body).encode(), "application/json")
    with pytest.raises(APIStatusError) as caught:
        of.messages.create(**ask(of))
    assert (caught.value.status_code, caught.value.type) == (error.status, kind)


@pytest.mark.parametrize(
    ("prompt", "window", "words"),
    [
        (210118, 200000, "prompt is too long: 210118 tokens > 200000 maximum"),
        (4096, 4096, "prompt is too long: 4096 tokens > 4095 maximum"),
    ],
)
def test_an_overflow_is_in_the_words_that_harnesses_compact_on(prompt: int, window: int, words: str) -> None:
    assert error_body(ContextLengthExceeded(prompt, window))["error"]["message"] == words


def test_a_count() -> None:
    of = client(200, json.dumps(count_reply(17)).encode(), "application/json")
    counted = of.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hi"}])
    assert counted.input_tokens == 17
