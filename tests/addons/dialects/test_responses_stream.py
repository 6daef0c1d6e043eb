from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import CompactedResponse, Response, ResponseStreamEvent
from pydantic import TypeAdapter

from addons.conversation import (
    Delta,
    Message,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from addons.dialects.responses import (
    Emitter,
    count_reply,
    frames,
    read,
    socket_error,
)
from addons.dialects.responses_items import input_items
from addons.dialects.responses_parts import unseal
from addons.dialects.responses_reply import output_items, response_of
from addons.errors import BadRequest, CallError, ContextLengthExceeded, EngineRefused, EngineUnavailable

REPLY_ID = "resp_0123456789abcdefABCDEFGH"
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False},
    {"type": "custom", "name": "apply_patch"},
    {"type": "namespace", "name": "ns", "description": "", "tools": [
        {"type": "function", "name": "get", "parameters": None, "strict": None}, {"type": "custom", "name": "patch"}]},
    {"type": "local_shell"},
    {"type": "tool_search", "execution": "client", "description": "", "parameters": {"type": "object"}},
]  # fmt: skip
USAGE = Usage(prompt=10, completion=7, cached=4, reasoning=2)

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def request(**more: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", "tools": TOOLS, "stream": True, **more}


def emitter(**more: Any) -> Emitter:
    return Emitter(read(request(**more), {"resp_0": []}.get), REPLY_ID, 1_700_000_000)


def calls(*arguments: tuple[str, str]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(f"call_{i}", name, text) for i, (name, text) in enumerate(arguments))


def reply(
    text: str = "", reasoning: str = "", called: Sequence[ToolCall] = (), finish: Any = "stop", **more: Any
) -> Reply:
    return Reply(Message("assistant", text, reasoning, tuple(called)), finish, USAGE, **more)


REPLIES = {
    "text": reply("Hello 🧑‍🚀."),
    "reasoning": reply("Two.", "Let me\n\nsee."),
    "only reasoning": reply("", "Hm."),
    "a call": reply(called=calls(("f", '{"a": 1}')), finish="tool_calls"),
    "a call without arguments": reply(called=calls(("f", "{}")), finish="tool_calls"),
    "everything": reply("I look.", "Hm.", calls(("f", '{"a": "é"}')), finish="tool_calls"),
    "two calls of one tool": reply(called=calls(("f", '{"a": 1}'), ("f", '{"a": 2}')), finish="tool_calls"),
    "calls of every kind": reply("x", "y", calls(
        ("apply_patch", '{"input": "*** Begin\\n\\"é\\""}'), ("apply_patch", '{"input": ""}'), ("ns__get", "{}"),
        ("ns__patch", '{"input": "p"}'), ("local_shell", '{"command": ["ls"], "timeout_ms": 5}'),
        ("tool_search", '{"q": "x"}'), ("of nobody", "{}"),
    ), finish="tool_calls"),
    "calls that do not fit": reply(called=calls(
        ("apply_patch", '{"patch": "p"}'), ("apply_patch", '{"input": "p", "more": 1}'), ("local_shell", "{}"),
        ("local_shell", '{"command": "ls"}'), ("local_shell", '{"command": ["ls"], "env": {"A": 1}}'),
        ("local_shell", '{"command": ["ls"], "cwd": "/"}'),
    ), finish="tool_calls"),
    "nothing": reply(),
    "length": reply("cut", finish="length"),
    "length in reasoning": reply("", "cut", finish="length"),
    "length after a call": reply("x", called=calls(("f", "{}")), finish="length"),
    "stop sequence": reply("a", finish="stop_sequence", stop_sequence="b"),
    "malformed": reply('<tool_call>{"name": "f", </tool_call>', malformed=True),
    "aborted": reply("cut", finish="abort"),
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "summary": {"reasoning": {"summary": "auto"}},
    "sealed": {"reasoning": {"summary": "detailed"}, "include": ["reasoning.encrypted_content"], "store": False},
}


def deltas(said: Reply, size: int = 3) -> list[Delta]:
    """The deltas of a reply, its texts in pieces of `size` characters."""
    message = said.message

    def cut(text: str) -> list[str]:
        return [text[i : i + size] for i in range(0, len(text), size)]

    out: list[Delta] = [ReasoningDelta(piece) for piece in cut(message.reasoning)]
    out += [TextDelta(piece) for piece in cut(message.content)]
    for index, called in enumerate(message.tool_calls):
        out += [ToolCallDelta(index, id=called.id, name=called.name), ToolCallDelta(index, called.arguments)]
    return out


def streamed(said: Reply, parts: Sequence[Delta] | None = None, **more: Any) -> bytes:
    writer = emitter(**more)
    out = writer.start(USAGE.prompt)
    out += b"".join(writer.delta(delta) for delta in (deltas(said) if parts is None else parts))
    return out + writer.finish(said)


def events(sent: bytes) -> list[dict[str, Any]]:
    """The events of a stream, after checking that each is well-formed as a server-sent event."""
    found = []
    for block in sent.decode().removesuffix("\n\n").split("\n\n"):
        kind, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert kind == f"event: {event['type']}"
        found.append(event)
    return found


def check(found: list[dict[str, Any]]) -> dict[str, Any]:
    """I2 and I3 for one stream of events; returns the response of the terminal one."""
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [event["type"] for event in found[:2]] == ["response.created", "response.in_progress"]
    terminal = {"response.completed", "response.incomplete", "response.failed"}
    assert [event["type"] in terminal for event in found] == [False] * (len(found) - 1) + [True]
    items: list[dict[str, Any]] = []
    opened: dict[str, Any] | None = None
    said, part = "", False
    for event in found[2:-1]:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert opened is None
            opened, said = event["item"], ""
        assert opened is not None, kind
        assert event["output_index"] == len(items)
        assert event.get("item_id", opened["id"]) == opened["id"]
        assert event.get("content_index", 0) == event.get("summary_index", 0) == 0
        if kind.endswith("part.added"):
            assert event["part"]["text"] == ""
            part = True
        elif kind.endswith("part.done"):
            assert event["part"]["text"] == said
            part = False
        elif kind.endswith(".delta"):
            stem = {"message": "output_text", "custom_tool_call": "custom_tool_call_input",
                    "function_call": "function_call_arguments", "reasoning": "reasoning"}[opened["type"]]  # fmt: skip
            assert kind.startswith(f"response.{stem}")
            assert part is (opened["type"] in ("message", "reasoning"))
            assert event["delta"]
            said += event["delta"]
        elif kind == "response.output_item.done":
            done = event["item"]
            assert (done["id"], done["type"], done.get("call_id")) == (
                opened["id"], opened["type"], opened.get("call_id"),
            )  # fmt: skip
            items.append(done)
            opened = None
        elif kind.endswith(".done"):
            assert next(event[key] for key in ("text", "arguments", "input") if key in event) == said
    assert opened is None
    response: dict[str, Any] = found[-1]["response"]
    assert response["output"] == items
    prefixes = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_",
                "local_shell_call": "lsh_", "tool_search_call": "tsc_", "compaction": "cmp_"}  # fmt: skip
    assert all(item["id"].startswith(prefixes[item["type"]]) for item in items)
    assert len({item["id"] for item in items}) == len(items)
    assert {response_of(item["id"]) for item in items} <= {REPLY_ID}
    return response


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", REPLIES)
def test_streamed_and_whole_are_equal(name: str, options: str) -> None:
    said, more = REPLIES[name], OPTIONS[options]
    response = check(events(streamed(said, **more)))
    assert json.loads(emitter(**more).whole(said)) == response
    assert output_items(read(request(**more)), REPLY_ID, said) == response["output"]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", REPLIES)
def test_every_event_is_of_the_sdk_s_type(name: str, options: str) -> None:
    for event in events(streamed(REPLIES[name], **OPTIONS[options])):
        typed = EVENT.validate_python(event)
        assert type(typed).model_fields["type"].annotation == Literal[event["type"]]
    Response.model_validate_json(emitter(**OPTIONS[options]).whole(REPLIES[name]))


def client(sent: bytes, kind: str = "text/event-stream") -> openai.OpenAI:
    answer = httpx2.Response(200, content=sent, headers={"content-type": kind})
    http = httpx2.Client(transport=httpx2.MockTransport(lambda _: answer))
    return openai.OpenAI(api_key="k", base_url="http://localhost/v1", http_client=http, max_retries=0)


@pytest.mark.parametrize("name", [name for name in REPLIES if REPLIES[name].finish not in ("length", "abort")])
def test_the_sdk_accumulates_what_it_gets_whole(name: str) -> None:
    said = REPLIES[name]
    whole = client(emitter().whole(said), "application/json").responses.create(model="m", input="hi")
    with client(streamed(said)).responses.stream(model="m", input="hi") as stream:
        snapshots = [event for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert final.output_text == whole.output_text == said.message.content
    assert [s.snapshot for s in snapshots][-1:] == [whole.output_text] * bool(said.message.content)
    assert final.usage == whole.usage
    assert [item.to_dict() for item in whole.output] == [
        {key: value for key, value in item.to_dict().items() if not key.startswith("parsed")} | (
            {"content": [{k: v for k, v in part.to_dict().items() if k != "parsed"} for part in item.content]}
            if item.type == "message" else {}
        )
        for item in final.output
    ]  # fmt: skip


def test_the_order_of_events() -> None:
    found = events(streamed(REPLIES["everything"], **OPTIONS["summary"]))
    kinds = [event["type"].removeprefix("response.") for event in found]
    assert [kind for i, kind in enumerate(kinds) if kinds[i - 1] != kind] == [
        "created", "in_progress",
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    plain = [event["type"] for event in events(streamed(REPLIES["only reasoning"]))]
    assert plain[2:-1] == [
        "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
        "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
    ]  # fmt: skip


def test_the_response_says_what_was_asked() -> None:
    asked: dict[str, Any] = {
        "instructions": "i", "metadata": {"k": "v"}, "temperature": 0.5, "max_output_tokens": 9, "store": False,
        "parallel_tool_calls": False, "tool_choice": "required", "previous_response_id": "resp_0",
        "reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"}, "truncation": "auto",
    }  # fmt: skip
    first, last = events(streamed(REPLIES["text"], **asked))[0]["response"], json.loads(
        emitter(**asked).whole(REPLIES["text"])
    )  # fmt: skip
    assert {key: last[key] for key in asked} == asked | {"text": {"format": {"type": "text"}, "verbosity": "low"}}
    assert {key: value for key, value in first.items() if last[key] != value} == {
        "status": "in_progress", "output": [], "usage": None,
    }  # fmt: skip
    assert (last["id"], last["object"], last["created_at"], last["model"], last["top_p"]) == (
        REPLY_ID, "response", 1_700_000_000, "m", 1.0,
    )  # fmt: skip
    assert (last["tools"], last["error"], last["incomplete_details"]) == (TOOLS, None, None)
    assert last["usage"] == {
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 17,
    }  # fmt: skip


def test_a_reply_cut_by_the_limit_is_incomplete() -> None:
    last = events(streamed(REPLIES["length in reasoning"]))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["type"] for item in last["response"]["output"]] == ["reasoning"]
    assert events(streamed(REPLIES["length"]))[-1]["response"]["output"][0]["status"] == "incomplete"


def test_calls_in_the_form_of_their_kind() -> None:
    output = check(events(streamed(REPLIES["calls of every kind"])))["output"][2:]
    for item in output:
        item.pop("id")
        assert item.pop("status") == "completed"
    assert output == [
        {"type": "custom_tool_call", "call_id": "call_0", "name": "apply_patch", "input": '*** Begin\n"é"'},
        {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": ""},
        {"type": "function_call", "call_id": "call_2", "name": "get", "namespace": "ns", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "call_3", "name": "patch", "namespace": "ns", "input": "p"},
        {"type": "local_shell_call", "call_id": "call_4",
         "action": {"type": "exec", "command": ["ls"], "timeout_ms": 5, "env": {}}},
        {"type": "tool_search_call", "call_id": "call_5", "execution": "client", "arguments": {"q": "x"}},
        {"type": "function_call", "call_id": "call_6", "name": "of nobody", "arguments": "{}"},
    ]  # fmt: skip


def test_a_call_that_does_not_fit_its_kind_is_never_changed() -> None:
    output = check(events(streamed(REPLIES["calls that do not fit"])))["output"]
    arguments = [call.arguments for call in REPLIES["calls that do not fit"].message.tool_calls]
    assert [item.get("input", item.get("arguments")) for item in output] == arguments
    assert [item["type"] for item in output] == ["custom_tool_call"] * 2 + ["function_call"] * 4


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_that_is_sent_back_is_the_reply_again(name: str, options: str) -> None:
    said, first = REPLIES[name], request(**OPTIONS[options])
    output = check(events(streamed(said, **OPTIONS[options])))["output"]
    answers = [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "x"}
        if item["type"] != "tool_search_call"
        else {"type": "tool_search_output", "call_id": item["call_id"], "tools": []}
        for item in output
        if "call_id" in item
    ]
    history = [*input_items(first), *output]
    found = read({**first, "input": [*history, *answers, *input_items({"input": "go on"})]})
    again = found.conversation.messages[1]
    assert (again.role, again.content, again.reasoning) == ("assistant", said.message.content, said.message.reasoning)
    assert [(c.id, c.name, json.loads(c.arguments)) for c in again.tool_calls] == [
        (c.id, c.name, json.loads(c.arguments)) for c in said.message.tool_calls
    ]
    assert [m.role for m in found.conversation.messages[2:]] == ["tool"] * len(said.message.tool_calls) + ["user"]
    assert found.ignored_fields == read(first).ignored_fields


PIECE = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)


@st.composite
def cuts(draw: st.DrawFn) -> list[Delta]:
    """Deltas in any order: kinds alternate, texts come in pieces, calls are complete before the next thing."""
    out: list[Delta] = []
    number = 0
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(("reasoning", "text", "call")))
        pieces = draw(st.lists(PIECE, min_size=1, max_size=4))
        if kind == "call":
            name = draw(st.sampled_from(("f", "apply_patch", "ns__get", "local_shell", "g")))
            arguments = json.dumps({"input": "".join(pieces)}, ensure_ascii=False)
            at = draw(st.integers(0, len(arguments)))
            out += [ToolCallDelta(number, "", f"call_{number}", name)]
            out += [ToolCallDelta(number, piece) for piece in (arguments[:at], arguments[at:])]
            number += 1
        else:
            out += [TextDelta(piece) if kind == "text" else ReasoningDelta(piece) for piece in pieces]
    return out


@given(cuts())
def test_any_order_makes_a_lawful_stream(parts: list[Delta]) -> None:
    response = check(events(streamed(reply(), parts)))
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    assert "".join(texts) == "".join(delta.text for delta in parts if isinstance(delta, TextDelta))
    numbers = {delta.index for delta in parts if isinstance(delta, ToolCallDelta)}
    assert [item["call_id"] for item in response["output"] if "call_id" in item] == [
        f"call_{n}" for n in sorted(numbers)
    ]


@given(st.integers(1, 40), st.sampled_from(sorted(REPLIES)))
def test_pieces_of_any_size_make_the_same_response(size: int, name: str) -> None:
    said = REPLIES[name]
    assert check(events(streamed(said, deltas(said, size)))) == check(events(streamed(said)))


def test_logprobs_are_with_the_text() -> None:
    def of(*tokens: str) -> list[dict[str, Any]]:
        return [{"token": t, "logprob": -0.5, "bytes": list(t.encode()), "top_logprobs": []} for t in tokens]

    include = ["message.output_text.logprobs"]
    writer = emitter(include=include)
    out = writer.start(1)
    out += writer.delta(ReasoningDelta("r"), of("r"))
    out += (
        writer.delta(TextDelta("a"), of("a")) + writer.delta(TextDelta("b")) + writer.finish(reply("ab", "r"), of("b"))
    )
    found = events(out)
    assert [e["logprobs"] for e in found if e["type"] == "response.output_text.delta"] == [of("r", "a"), []]
    assert next(e["logprobs"] for e in found if e["type"] == "response.output_text.done") == of("r", "a", "b")
    whole = json.loads(emitter(include=include).whole(reply("ab", "r"), of("r", "a", "b")))
    assert check(found) == whole
    assert whole["output"][1]["content"][0]["logprobs"] == of("r", "a", "b")


def test_silence_is_an_event_that_counts() -> None:
    writer = emitter()
    out = writer.start(1) + writer.silence() + writer.delta(TextDelta("a")) + writer.silence()
    found = events(out + writer.finish(reply("a")))
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [event["type"] for event in found].count("keepalive") == 2
    with client(out).responses.create(model="m", input="x", stream=True) as stream:
        assert [str(event.type) for event in stream].count("keepalive") == 2


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ContextLengthExceeded(9, 5), "context_length_exceeded", "Your input exceeds the context window of this model"),
        (EngineUnavailable("gone"), "server_error", "gone"),
        (EngineRefused(500, "oops"), "server_error", "oops"),
        (EngineRefused(429, "Busy.", retry_after=3), "rate_limit_exceeded", "Busy. Please try again in 3s."),
        (BadRequest("no", param="messages"), "invalid_prompt", "no"),
    ],
)
def test_an_error_inside_the_stream(error: CallError, code: str, message: str) -> None:
    writer = emitter()
    out = writer.start(1) + writer.delta(TextDelta("a")) + writer.fail(error)
    found = events(out)
    assert [event["type"] for event in found[-2:]] == ["error", "response.failed"]
    assert found[-2]["error"]["code"] == found[-1]["response"]["error"]["code"] == code
    assert found[-2]["error"]["message"].startswith(message)
    assert found[-1]["response"]["status"] == "failed"
    if code != "context_length_exceeded":  # which the provider sends, and its own types leave out
        EVENT.validate_python(found[-1])
    with pytest.raises(openai.APIError, match=message), client(out).responses.stream(model="m", input="x") as stream:
        stream.until_done()


def test_a_prompt_that_is_too_long_is_said_inside_the_stream() -> None:
    error = ContextLengthExceeded(9, 5)
    sent = emitter().refuse(error)
    assert sent is not None
    assert [event["type"] for event in events(sent)] == [
        "response.created", "response.in_progress", "error", "response.failed",
    ]  # fmt: skip
    assert emitter().refuse(BadRequest("no")) is None
    assert emitter(stream=False).refuse(error) is None


def test_a_prewarm() -> None:
    asked = request(type="response.create", generate=False, input=[])
    found = events(Emitter(read(asked, socket=True), REPLY_ID, 1_700_000_000).unsampled())
    assert [event["type"] for event in found] == ["response.created", "response.completed"]
    assert found[-1]["response"]["output"] == []
    assert found[-1]["response"]["usage"]["total_tokens"] == 0
    assert found[-1]["response"]["id"] == REPLY_ID


@pytest.mark.parametrize("pieces", [(), ("so ", "far")])
def test_a_summary_is_one_sealed_item(pieces: tuple[str, ...]) -> None:
    """Codex gives up on a compaction that has any other number of them."""
    compact = {"input": [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}]}
    said: list[Delta] = [ReasoningDelta("hm"), *(TextDelta(piece) for piece in pieces), ReasoningDelta("and")]
    said += [TextDelta("!")] if pieces else []
    text = "".join(pieces) + "!" * bool(pieces)
    done = Reply(Message("assistant", text, "hmand"), "stop", Usage(9, 4), said=tuple(said))
    writer = emitter(**compact)
    sent = writer.start(9) + b"".join(writer.delta(delta) for delta in said) + writer.finish(done)
    response = check(events(sent))
    [summary] = [item for item in response["output"] if item["type"] == "compaction"]
    assert summary["id"].startswith("cmp_")
    assert (unseal(summary["encrypted_content"]) or "").endswith(f"\n\n{text}")
    assert [item["type"] for item in response["output"]] == ["reasoning", "compaction"]
    whole = json.loads(emitter(**compact, stream=False).whole(done))
    assert whole["output"] == response["output"]


def test_the_route_that_compacts_answers_what_is_to_be_sent_on() -> None:
    done = Reply(Message("assistant", "so far"), "stop", Usage(9, 4))
    asked = request(stream=False, input=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}])
    made = json.loads(Emitter(read(asked, compact=True), REPLY_ID, 1_700_000_000).whole(done))
    found = CompactedResponse.model_validate({**made, "output": made["output"][1:]})
    assert (found.object, found.usage.output_tokens) == ("response.compaction", 4)
    assert made["output"][0] == {
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}],
    }  # fmt: skip
    [user, summary] = read(request(input=made["output"])).conversation.messages
    assert (user.content, summary.content.rpartition("\n")[2]) == ("hi", "so far")


def test_over_a_websocket() -> None:
    sent = streamed(REPLIES["everything"])
    assert [json.loads(frame) for frame in frames(sent)] == events(sent)
    assert frames(b"") == []
    assert socket_error(BadRequest("no", param="input")) == {
        "type": "error", "status": 400,
        "error": {"message": "no", "type": "invalid_request_error", "param": "input", "code": "invalid_value"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "steps",
    [
        ["delta"], ["finish"], ["silence"], ["start", "start"], ["start", "finish", "delta"],
        ["start", "finish", "finish"], ["start", "fail", "finish"], ["start", "unsampled"],
    ],
)  # fmt: skip
def test_a_step_out_of_order_is_a_bug(steps: list[str]) -> None:
    writer = emitter()
    does = {
        "start": lambda: writer.start(1), "delta": lambda: writer.delta(TextDelta("x")), "silence": writer.silence,
        "finish": lambda: writer.finish(reply("x")), "fail": lambda: writer.fail(BadRequest("x")),
        "unsampled": writer.unsampled,
    }  # fmt: skip
    for step in steps[:-1]:
        does[step]()
    with pytest.raises(AssertionError, match="responses emitter"):
        does[steps[-1]]()


def test_a_call_must_begin_with_its_name() -> None:
    writer = emitter()
    writer.start(1)
    with pytest.raises(AssertionError, match="call 0 begins without"):
        writer.delta(ToolCallDelta(0, "{}"))


def codex_reads(found: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """What Codex makes of a stream, by the rules of its reader: the items it keeps, and how the stream ended.

    It takes items from `output_item.done` alone, a text delta only for the message that is active, and stops at
    `response.completed`, which needs an id and integer counts.
    """
    needs = {
        "message": {"role", "content"}, "reasoning": {"summary"}, "function_call": {"name", "arguments", "call_id"},
        "custom_tool_call": {"name", "input", "call_id"}, "local_shell_call": {"status", "action"},
        "tool_search_call": {"execution", "arguments"},
    }  # fmt: skip
    kept: list[dict[str, Any]] = []
    active: str | None = None
    for event in found:
        kind, item = event["type"], event.get("item")
        if item is not None:
            assert needs[item["type"]] <= item.keys()
        if kind == "response.output_item.added":
            active = item["type"] if item else None
        elif kind == "response.output_item.done":
            assert item is not None
            kept.append(item)
            active = None
        elif kind == "response.output_text.delta":
            assert active == "message"
        elif kind == "response.custom_tool_call_input.delta":
            assert active == "custom_tool_call"
            assert event["item_id"]
        elif kind == "response.completed":
            usage = event["response"]["usage"]
            assert all(type(usage[key]) is int for key in ("input_tokens", "output_tokens", "total_tokens"))
            assert type(usage["input_tokens_details"]["cached_tokens"]) is int
            assert type(usage["output_tokens_details"]["reasoning_tokens"]) is int
            return kept, event["response"]["id"]
        elif kind == "response.incomplete":
            return kept, event["response"]["incomplete_details"]["reason"]
        elif kind == "response.failed":
            return kept, event["response"]["error"]["code"]
    return kept, "stream closed before response.completed"


@pytest.mark.parametrize("name", REPLIES)
def test_codex_gets_every_item_and_the_end(name: str) -> None:
    said = REPLIES[name]
    kept, end = codex_reads(events(streamed(said)))
    assert kept == json.loads(emitter().whole(said))["output"]
    assert end == ("max_output_tokens" if said.finish in ("length", "abort") else REPLY_ID)


def test_codex_is_told_that_the_prompt_is_too_long() -> None:
    sent = emitter().refuse(ContextLengthExceeded(9, 5))
    assert sent is not None
    assert codex_reads(events(sent)) == ([], "context_length_exceeded")


def test_a_count() -> None:
    assert count_reply(7) == {"object": "response.input_tokens", "input_tokens": 7}


def test_long_texts_cost_no_more_a_piece() -> None:
    """The stream's size grows with the reply, not with its square."""
    one, two = (len(streamed(reply("x" * n), [TextDelta("x")] * n)) for n in (1000, 2000))
    assert two < 2.2 * one
