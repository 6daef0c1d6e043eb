from __future__ import annotations

import base64
from typing import Any

import pytest

from addons.conversation import Message, ToolCall
from addons.dialects.gemini_signature import thought_signature
from tests.addons.dialects.gemini_bodies import HI, PNG, answer, ask, call_of, messages_of, model, user


def test_messages_of_every_kind() -> None:
    signed = {"thoughtSignature": thought_signature("r1")}
    call = call_of(
        {"parts": [{"text": "no role: "}, {"text": "a user"}]},
        model(
            {"text": "hm", "thought": True}, {"text": "I "}, {"text": "look", **signed},
            {**ask("ls", id="c1"), **signed},
        ),
        {"role": "function", "parts": [answer("ls", {"output": "a\nb"}, id="c1")]},
        model({"text": "done"}),
        user({"text": "more"}),
        systemInstruction={"role": "system", "parts": [{"text": "be "}, {"text": "brief"}]},
    )  # fmt: skip
    assert call.conversation.messages == (
        Message("system", "be brief"),
        Message("user", "no role: a user"),
        Message("assistant", "I look", "hm", (ToolCall("c1", "ls", "{}"),)),
        Message("tool", "a\nb", tool_call_id="c1", name="ls"),
        Message("assistant", "done"),
        Message("user", "more"),
    )
    assert call.ignored_fields == ()


def test_parallel_calls_of_one_function_stay_two_and_match_by_id_in_any_order() -> None:
    messages = messages_of(
        HI,
        model(ask("ls", {"path": "a"}, id="1"), ask("ls", {"path": "b"}, id="2")),
        user(answer("ls", {"output": "B"}, id="2"), answer("ls", {"output": "A"}, id="1")),
    )
    assert messages[1].tool_calls == (ToolCall("1", "ls", '{"path": "a"}'), ToolCall("2", "ls", '{"path": "b"}'))
    assert [(m.tool_call_id, m.content) for m in messages[2:]] == [("2", "B"), ("1", "A")]


def test_without_ids_responses_match_by_name_and_order_within_the_turn() -> None:
    messages = messages_of(
        HI,
        model(ask("ls", {"path": "a"}), ask("cat"), ask("ls", {"path": "b"})),
        user(answer("cat", {"output": "C"}), answer("ls", {"output": "A"}), answer("ls", {"output": "B"})),
        model(ask("ls", {"path": "c"})),
        user(answer("ls", {"output": "again"})),
    )
    first, second = messages[1].tool_calls, messages[5].tool_calls
    ids = [call.id for call in (*first, *second)]
    assert len(set(ids)) == 4
    answers = {m.content: m.tool_call_id for m in messages if m.role == "tool"}
    assert answers == {"A": ids[0], "C": ids[1], "B": ids[2], "again": ids[3]}


def test_a_response_is_never_that_of_an_earlier_turn() -> None:
    messages = messages_of(HI, model(ask("ls")), HI, model(ask("ls")), user(answer("ls", {"output": "B"})))
    assert messages[-1].tool_call_id == messages[3].tool_calls[0].id != messages[1].tool_calls[0].id


def test_ids_that_the_harness_repeats_become_unique() -> None:
    messages = messages_of(
        HI,
        model(ask("ls", {"path": "a"}, id="x"), ask("ls", {"path": "b"}, id="x")),
        user(answer("ls", {"output": "A"}, id="x"), answer("ls", {"output": "B"}, id="x")),
        model(ask("ls", id="x")),
        user(answer("ls", {"output": "C"}, id="x")),
    )
    ids = [call.id for m in messages for call in m.tool_calls]
    assert len(set(ids)) == 3
    assert [m.tool_call_id for m in messages if m.role == "tool"] == ids


def test_ids_are_the_same_whenever_the_history_is_sent_again() -> None:
    history = [HI, model(ask("ls"), ask("ls")), user(answer("ls", {}), answer("ls", {}))]
    assert messages_of(*history) == messages_of(*history, model({"text": "x"}))[:4]


def test_an_id_that_names_no_call_falls_back_to_the_order() -> None:
    messages = messages_of(HI, model(ask("ls")), user(answer("ls", {"output": "A"}, id="ls_171_0")))
    assert messages[2].tool_call_id == messages[1].tool_calls[0].id


def test_text_and_responses_keep_their_order() -> None:
    messages = messages_of(
        HI, model(ask("a"), ask("b")), user(answer("a", {"output": "1"}), {"text": "x"}, answer("b", {"output": "2"}))
    )
    assert [(m.role, m.content) for m in messages[2:]] == [("tool", "1"), ("user", "x"), ("tool", "2")]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ({"output": "plain\ntext é"}, "plain\ntext é"),
        ({"output": {"n": 1}}, '{"n": 1}'),
        ({"error": "naïve 한"}, '{"error": "naïve 한"}'),
        ({"output": "o", "error": "e"}, '{"output": "o", "error": "e"}'),
        ({"result": "🧑‍🚀"}, '{"result": "🧑‍🚀"}'),
        ({}, "{}"),
    ],
)
def test_a_response_reaches_the_model_unescaped(response: dict[str, Any], text: str) -> None:
    assert messages_of(HI, model(ask("f")), user(answer("f", response)))[2].content == text


def test_the_parts_of_a_response_are_shown() -> None:
    parts = [{"inlineData": {"mimeType": "image/png", "data": PNG, "displayName": "s.png"}}]
    call = call_of(HI, model(ask("f")), user(answer("f", {"output": "see"}, parts=parts)))
    assert call.conversation.messages[2].content == "see\n[image: s.png, image/png, 7 bytes]"
    assert call.ignored_fields == ("contents[].parts[].functionResponse.parts[].inlineData",)


def test_chunks_that_were_recorded_one_by_one_are_one_message() -> None:
    """Google's SDKs keep each object of a stream as a content of its own."""
    streamed = messages_of(HI, model({"text": "Hel"}), model({"text": "lo"}), model(ask("f", id="1"), {"text": ""}), HI)
    whole = messages_of(HI, model({"text": "Hello"}, ask("f", id="1")), HI)
    assert streamed == whole


def test_an_empty_reply_is_still_a_turn() -> None:
    for parts in ([], [{"text": ""}], [{"text": "", "thoughtSignature": thought_signature("r")}]):
        assert messages_of(HI, {"role": "model", "parts": parts}, HI)[1] == Message("assistant", "")


def test_signatures_come_back_on_any_part() -> None:
    ours = thought_signature("reply")
    for known in (ours, ours.replace("+", "-").replace("/", "_"), "skip_thought_signature_validator"):
        signed = {"thoughtSignature": known}
        call = call_of(
            user({"text": "hi", **signed}), model({"text": "x", **signed}, {**ask("f"), **signed}, signed), HI
        )
        assert call.ignored_fields == ()
    foreign = call_of(HI, model({"text": "x", "thoughtSignature": base64.b64encode(b"other").decode()}), HI)
    assert foreign.ignored_fields == ("contents[].parts[].thoughtSignature",)


# --- media and the provider's own tools


def test_media_become_placeholders_in_place() -> None:
    call = call_of(user(
        {"text": "see "}, {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"text": " and "}, {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://b/f.pdf"}},
        {"text": "!"},
    ))  # fmt: skip
    assert call.conversation.messages[0].content == (
        "see [image: image/png, 7 bytes] and [document: application/pdf, gs://b/f.pdf]!"
    )
    assert call.ignored_fields == ("contents[].parts[].fileData", "contents[].parts[].inlineData")


@pytest.mark.parametrize("mime", ["text/plain", "text/markdown; charset=utf-8", "application/json"])
def test_text_documents_are_text(mime: str) -> None:
    data = base64.urlsafe_b64encode("ÿé?>".encode()).decode()
    call = call_of(user({"inlineData": {"mimeType": mime, "data": data}}))
    assert (call.conversation.messages[0].content, call.ignored_fields) == ("ÿé?>", ())


def test_code_that_ran_is_shown() -> None:
    text = messages_of(
        HI,
        model(
            {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        ),
        HI,
    )[1].content
    assert "```python\nprint(1)\n```" in text
    assert "```\n1\n```" in text


# --- tools and tool choice
