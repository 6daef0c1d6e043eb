from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import errors, types
from hypothesis import given
from hypothesis import strategies as st

from addons.conversation import (
    Call,
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from addons.dialects.gemini import read
from addons.dialects.gemini_stream import Emitter
from addons.errors import EngineUnavailable

HI = {"role": "user", "parts": [{"text": "hi"}]}
REPLY_ID = "XyZ123"
USAGE = Usage(prompt=10, completion=7, cached=4, reasoning=3)


def call(*, stream: bool = True, sse: bool = True, thoughts: bool = True, logprobs: bool = False) -> Call:
    config: dict[str, Any] = {"thinkingConfig": {"includeThoughts": thoughts}, "responseLogprobs": logprobs}
    return read({"contents": [HI], "generationConfig": config}, "gemini-x", stream, sse)


def reply(deltas: Sequence[Delta], finish: Finish = "stop", **more: Any) -> Reply:
    """The reply that the parser makes of these deltas."""
    content = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    reasoning = "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))
    calls: dict[int, ToolCall] = {}
    for d in deltas:
        if isinstance(d, ToolCallDelta):
            old = calls.get(d.index) or ToolCall(d.id or "", d.name or "", "")
            calls[d.index] = replace(old, arguments=old.arguments + d.arguments)
    return Reply(Message("assistant", content, reasoning, tuple(calls.values())), finish, USAGE, **more)


def called(index: int, name: str, arguments: str) -> list[Delta]:
    return [ToolCallDelta(index, id=f"function-call-{index}", name=name), ToolCallDelta(index, arguments)]


def streamed(deltas: Sequence[Delta], finish: Finish = "stop", asked: Call | None = None, **more: Any) -> list[bytes]:
    emitter = Emitter(asked or call(), REPLY_ID, 0)
    out = [emitter.start(10), emitter.silence()]
    out += [emitter.delta(delta) for delta in deltas]
    out += [emitter.silence(), emitter.finish(reply(deltas, finish, **more))]
    return out


def whole(deltas: Sequence[Delta], finish: Finish = "stop", asked: Call | None = None, **more: Any) -> dict[str, Any]:
    body = Emitter(asked or call(stream=False), REPLY_ID, 0).whole(reply(deltas, finish, **more))
    parsed: dict[str, Any] = json.loads(body)
    return parsed


def events(out: Sequence[bytes]) -> list[dict[str, Any]]:
    text = b"".join(out).decode()
    found = [part.strip().removeprefix("data: ") for part in text.split("\r\n\r\n") if part.strip()]
    return [json.loads(event) for event in found]


class FakeGoogle:
    """The official SDK, answered with `chunks`; each goes through the SDK on its own."""

    def __init__(self) -> None:
        self.chunks: Sequence[bytes] = ()
        self.content_type = ""
        options = types.HttpOptions(
            client_args={"transport": httpx.MockTransport(self._answer)}, base_url="http://gemini.test"
        )
        self.client = genai.Client(api_key="k", http_options=options)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        body = Chunks([chunk for chunk in self.chunks if chunk])
        return httpx.Response(200, headers={"content-type": self.content_type}, stream=body)

    def __call__(self, chunks: Sequence[bytes], content_type: str = "text/event-stream") -> genai.Client:
        self.chunks, self.content_type = chunks, content_type
        return self.client


class Chunks(httpx.SyncByteStream):
    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks


google = FakeGoogle()


def sdk_stream(chunks: Sequence[bytes]) -> list[types.GenerateContentResponse]:
    return list(google(chunks).models.generate_content_stream(model="gemini-x", contents="hi"))


def sdk_whole(body: dict[str, Any]) -> types.GenerateContentResponse:
    sent = [json.dumps(body).encode()]
    return google(sent, "application/json").models.generate_content(model="gemini-x", contents="hi")


def parts_of(responses: Sequence[types.GenerateContentResponse]) -> list[types.Part]:
    """All parts, texts of one kind in a row as one, as the harnesses keep them in their history."""
    out: list[types.Part] = []
    for response in responses:
        assert response.candidates
        content = response.candidates[0].content
        assert content is not None
        assert content.role == "model"
        assert content.parts
        for part in content.parts:
            last = out[-1] if out else None
            if last is not None and None not in (last.text, part.text) and last.thought == part.thought:
                signature = part.thought_signature or last.thought_signature
                out[-1] = types.Part(text=f"{last.text}{part.text}", thought=last.thought, thought_signature=signature)
            elif part.text != "" or part.thought_signature or not out:
                out.append(part)
    return out


def finish_of(response: types.GenerateContentResponse) -> types.FinishReason | None:
    assert response.candidates
    return response.candidates[0].finish_reason


CASES: dict[str, tuple[list[Delta], Finish, types.FinishReason]] = {
    "text": ([TextDelta("Hel"), TextDelta("lo é한🧑‍🚀")], "stop", types.FinishReason.STOP),
    "reasoning": ([ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("ok")], "stop", types.FinishReason.STOP),
    "tool": (called(0, "ls", '{"path": "é"}'), "tool_calls", types.FinishReason.STOP),
    "text and tool": ([TextDelta("I look."), *called(0, "ls", "{}")], "tool_calls", types.FinishReason.STOP),
    "parallel": (
        [ReasoningDelta("hm"), *called(0, "ls", '{"p":1}'), *called(1, "ls", '{"p":2}'), *called(2, "cat", "{}")],
        "tool_calls",
        types.FinishReason.STOP,
    ),
    "empty": ([], "stop", types.FinishReason.STOP),
    "only reasoning": ([ReasoningDelta("hm")], "stop", types.FinishReason.STOP),
    "length": ([TextDelta("cut o")], "length", types.FinishReason.MAX_TOKENS),
    "length in reasoning": ([ReasoningDelta("hm")], "length", types.FinishReason.MAX_TOKENS),
    "stop sequence": ([TextDelta("a")], "stop_sequence", types.FinishReason.STOP),
    "malformed": ([TextDelta('<tool_call>{"name"')], "stop", types.FinishReason.STOP),
    "abort": ([TextDelta("a")], "abort", types.FinishReason.OTHER),
}


@pytest.mark.parametrize("name", CASES)
def test_the_stream_is_the_whole(name: str) -> None:
    deltas, finish, reason = CASES[name]
    chunks = sdk_stream(streamed(deltas, finish))
    one = sdk_whole(whole(deltas, finish))
    assert parts_of(chunks) == parts_of([one])
    assert [finish_of(chunk) for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert finish_of(chunks[-1]) == finish_of(one) == reason
    assert chunks[-1].usage_metadata == one.usage_metadata
    assert {(c.model_version, c.response_id) for c in [*chunks, one]} == {("gemini-x", REPLY_ID)}


@pytest.mark.parametrize("name", CASES)
def test_what_the_sdk_reads_is_the_reply(name: str) -> None:
    deltas, finish, _ = CASES[name]
    message = reply(deltas, finish).message
    parts = parts_of(sdk_stream(streamed(deltas, finish)))
    assert "".join(p.text or "" for p in parts if not p.thought) == message.content
    assert "".join(p.text or "" for p in parts if p.thought) == message.reasoning
    calls = [p.function_call for p in parts if p.function_call]
    assert [(c.id, c.name, c.args) for c in calls] == [
        (c.id, c.name, json.loads(c.arguments)) for c in message.tool_calls
    ]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stream", [True, False])
def test_what_the_sdks_chat_replays_is_the_reply(name: str, stream: bool) -> None:
    """The SDK drops a turn that has an object without parts: each must be kept, and come back as what was said."""
    deltas, finish, _ = CASES[name]
    sent = streamed(deltas, finish) if stream else [json.dumps(whole(deltas, finish)).encode()]
    chat = google(sent).chats.create(model="gemini-x")
    if stream:
        list(chat.send_message_stream("hi"))
    else:
        chat.send_message("hi")
    history = [content.model_dump(mode="json", exclude_none=True) for content in chat.get_history(curated=True)]
    again = read({"contents": [*history, HI]}, "gemini-x")
    message = reply(deltas, finish).message
    assert [m.role for m in again.conversation.messages] == ["user", "assistant", "user"]
    back = again.conversation.messages[1]
    assert (back.content, back.reasoning) == (message.content, message.reasoning)
    assert [(c.id, c.name, json.loads(c.arguments)) for c in back.tool_calls] == [
        (c.id, c.name, json.loads(c.arguments)) for c in message.tool_calls
    ]
    assert again.ignored_fields == ()


@pytest.mark.parametrize("name", CASES)
def test_without_alt_sse_the_same_objects_are_one_json_array(name: str) -> None:
    deltas, finish, _ = CASES[name]
    asked = call(sse=False)
    out = streamed(deltas, finish, asked)
    assert json.loads(b"".join(out)) == events(streamed(deltas, finish))
    assert Emitter(asked, REPLY_ID, 0).content_type == "application/json; charset=UTF-8"
    assert Emitter(call(), REPLY_ID, 0).content_type == "text/event-stream"


def test_thoughts_are_shown_only_when_asked_for() -> None:
    deltas, finish, _ = CASES["reasoning"]
    hidden = call(thoughts=False)
    out = streamed(deltas, finish, hidden)
    assert parts_of(sdk_stream(out)) == parts_of([sdk_whole(whole(deltas, finish, hidden))])
    assert all(b'thought"' not in chunk for chunk in out)
    # While nothing can be shown, something still comes, so that no client takes the line for dead.
    assert out[2:4] == [b"\r\n", b"\r\n"]
    usage = sdk_stream(out)[-1].usage_metadata
    assert usage is not None
    assert usage.thoughts_token_count == 3


def test_usage_counts_every_sampled_token_once() -> None:
    chunks = sdk_stream(streamed(*CASES["reasoning"][:2]))
    usage = chunks[-1].usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count) == (10, 4, 3)
    assert (usage.total_token_count, usage.cached_content_token_count) == (17, 4)
    first = chunks[0].usage_metadata
    assert first is not None
    assert (first.prompt_token_count, first.candidates_token_count) == (10, None)


def test_a_call_is_sent_complete_and_at_once() -> None:
    emitter = Emitter(call(), REPLY_ID, 0)
    emitter.start(1)
    assert emitter.delta(ToolCallDelta(0, id="a", name="f")) == b""
    assert emitter.delta(ToolCallDelta(0, '{"a": {"b": "}')) == b""
    assert events([emitter.delta(ToolCallDelta(0, '"}}'))])[0]["candidates"][0]["content"]["parts"][0][
        "functionCall"
    ] == {"name": "f", "args": {"a": {"b": "}"}}, "id": "a"}


def test_arguments_keep_their_digits() -> None:
    big = '{"n": 123456789012345678901234567890, "x": 1.10}'
    assert big.encode() in b"".join(streamed(called(0, "f", big), "tool_calls"))
    with pytest.raises(AssertionError, match="no JSON object"):
        streamed(called(0, "f", "[1]"), "tool_calls")


def test_one_signature_where_gemini_has_it() -> None:
    def signed(deltas: list[Delta]) -> list[bool]:
        body = whole(deltas)
        return ["thoughtSignature" in part for part in body["candidates"][0]["content"]["parts"]]

    assert signed(CASES["parallel"][0]) == [False, True, False, False]
    assert signed(CASES["reasoning"][0]) == [False, True]
    assert signed(CASES["text and tool"][0]) == [False, True]
    last = events(streamed(CASES["text"][0]))[-1]["candidates"][0]["content"]["parts"]
    assert last[0]["text"] == ""
    base64.b64decode(last[0]["thoughtSignature"], validate=True)


@pytest.mark.parametrize("asked", [call(), call(sse=False)])
def test_an_error_in_mid_stream_raises_in_the_sdk(asked: Call) -> None:
    for deltas in ([], [TextDelta("a")]):
        emitter = Emitter(asked, REPLY_ID, 0)
        out = [emitter.start(1), *(emitter.delta(d) for d in deltas), emitter.fail(EngineUnavailable("vLLM went away"))]
        if asked.options.get("array"):
            assert json.loads(b"".join(out))[-1]["error"]["status"] == "UNAVAILABLE"
            continue
        # Google's JavaScript SDK raises when a chunk is JSON with an error; an event it would take for a reply.
        assert json.loads(out[-1])["error"]["code"] == 503
        with pytest.raises(errors.ServerError, match="vLLM went away"):
            sdk_stream(out)


def test_no_line_of_a_stream_is_a_comment() -> None:
    """Google's Python SDK parses every line but `data: ` as JSON."""
    for deltas, finish, _ in CASES.values():
        for line in b"".join(streamed(deltas, finish)).split(b"\r\n"):
            assert line == b"" or line.startswith(b"data: {")


def test_logprobs_are_answered_when_asked() -> None:
    entries = [
        {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []},
        {"token": "b", "logprob": -3.0, "bytes": [98], "top_logprobs": [{"token": "b", "logprob": -3.0}]},
    ]
    emitter = Emitter(call(logprobs=True), REPLY_ID, 0)
    out = [emitter.start(1), emitter.delta(TextDelta("a"), entries[:1])]
    out += [emitter.delta(ToolCallDelta(0, id="c", name="f"), entries[1:]), emitter.delta(ToolCallDelta(0, "{}"))]
    out.append(emitter.finish(reply([TextDelta("a"), *called(0, "f", "{}")], "tool_calls")))
    first, second, last = (e["candidates"][0] for e in events(out))
    assert first["logprobsResult"] == {"chosenCandidates": [{"token": "a", "logProbability": -1.0}]}
    assert second["logprobsResult"] == {
        "chosenCandidates": [{"token": "b", "logProbability": -3.0}],
        "topCandidates": [{"candidates": [{"token": "b", "logProbability": -3.0}]}],
    }
    assert ("logprobsResult" in last, last["avgLogprobs"], "avgLogprobs" in first) == (False, -2.0, False)
    body = Emitter(call(stream=False, logprobs=True), REPLY_ID, 0).whole(reply([TextDelta("ab")]), entries)
    parsed = sdk_whole(json.loads(body))
    assert parsed.candidates
    result = parsed.candidates[0].logprobs_result
    assert result is not None
    assert result.chosen_candidates is not None
    assert [c.log_probability for c in result.chosen_candidates] == [-1.0, -3.0]
    assert parsed.candidates[0].avg_logprobs == -2.0
    assert b"ogprobs" not in b"".join(streamed([TextDelta("a")]))


@pytest.mark.parametrize(
    "steps",
    [["delta"], ["finish"], ["start", "start"], ["start", "finish", "finish"], ["start", "finish", "delta"]],
)
def test_steps_out_of_order_are_a_bug(steps: list[str]) -> None:
    emitter = Emitter(call(), REPLY_ID, 0)
    take: dict[str, Any] = {
        "start": lambda: emitter.start(1),
        "delta": lambda: emitter.delta(TextDelta("a")),
        "finish": lambda: emitter.finish(reply([])),
    }
    for step in steps[:-1]:
        take[step]()
    with pytest.raises(AssertionError, match=steps[-1]):
        take[steps[-1]]()


TEXTS = st.text(min_size=1, max_size=8).filter(lambda s: s.isprintable() or "\u2028" in s)
PIECES = st.lists(
    st.one_of(
        st.builds(TextDelta, TEXTS),
        st.builds(ReasoningDelta, TEXTS),
        st.dictionaries(TEXTS, TEXTS, max_size=2).map(lambda d: json.dumps(d, ensure_ascii=False)),
    ),
    max_size=6,
)


@given(PIECES, st.data())
def test_cuts_change_nothing(pieces: list[TextDelta | ReasoningDelta | str], data: st.DataObject) -> None:
    """However deltas are cut, and however the bytes are, the SDK reads the same parts."""
    uncut: list[Delta] = []
    cut: list[Delta] = []
    calls = 0
    for piece in pieces:
        text = piece if isinstance(piece, str) else piece.text
        at = data.draw(st.integers(0, len(text)))
        halves = [half for half in (text[:at], text[at:]) if half]
        if isinstance(piece, str):
            uncut += called(calls, "f", piece)
            cut += [called(calls, "f", "")[0], *(ToolCallDelta(calls, half) for half in halves)]
            calls += 1
        else:
            uncut.append(piece)
            cut += [type(piece)(half) for half in halves]
    sent = b"".join(streamed(cut))
    size = data.draw(st.integers(1, 50))
    chunks = [sent[i : i + size] for i in range(0, len(sent), size)]
    assert parts_of(sdk_stream(chunks)) == parts_of(sdk_stream(streamed(uncut)))
