from __future__ import annotations

from typing import Any

import pytest

from addons.conversation import Message, ToolCall
from addons.dialects.messages import read
from addons.lineage import trail
from tests.addons.dialects.messages_bodies import LS, PNG, USER, assistant, body, messages, result, text, user


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("be brief", "be brief"),
        ([text("a"), text("b")], "a\nb"),
        ([text("x-anthropic-billing-header: cc_version=1; cch=0af3;"), text("a")], "a"),
        ("x-anthropic-billing-header: cch=1;\nbe brief", "be brief"),
    ],
)
def test_system(system: Any, said: str) -> None:
    assert read(body(system=system)).conversation.messages == (Message("system", said), Message("user", "hi"))


@pytest.mark.parametrize("system", ["", [], None, [text("x-anthropic-billing-header: cch=1;")]])
def test_no_system(system: Any) -> None:
    assert read(body(system=system)).conversation.messages == (Message("user", "hi"),)


def test_what_changes_in_every_request_changes_no_prompt() -> None:
    first, second = (
        read(body(system=[text(f"x-anthropic-billing-header: cch={n};"), {**text("a"), **cached}], messages=[said]))
        for n, cached, said in ((1, {}, USER), (2, {"cache_control": {"type": "ephemeral"}}, user(text("hi"))))
    )
    assert first.conversation == second.conversation
    assert first.ignored_fields == ("system[x-anthropic-billing-header]",)
    assert second.ignored_fields == ("system[].cache_control", "system[x-anthropic-billing-header]")


def test_a_system_message_stays_where_it_is() -> None:
    history = [USER, {"role": "assistant", "content": "a"}, {"role": "system", "content": "later"}, USER]
    call = read(body(system="s", messages=history))
    assert [m.role for m in call.conversation.messages] == ["system", "user", "assistant", "system", "user"]
    earlier = read(body(system="s", messages=history[:1]))
    left = trail(earlier.conversation).after(Message("assistant", "a"))
    assert left in {prefix.digest for prefix in trail(call.conversation).prefixes}


def test_a_turn_with_everything() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert messages(
        USER,
        assistant(thought, text("I look."), LS, {**LS, "id": "toolu_2", "input": {"command": "é"}}),
        user(result("a"), result("b", tool_use_id="toolu_2"), text("and?"), PNG),
    ) == (
        Message("user", "hi"),
        Message(
            "assistant",
            "I look.",
            "hm",
            (ToolCall("toolu_1", "Bash", '{"command": "ls"}'), ToolCall("toolu_2", "Bash", '{"command": "é"}')),
        ),
        Message("tool", "a", tool_call_id="toolu_1"),
        Message("tool", "b", tool_call_id="toolu_2"),
        Message("user", "and?\n[image: image/png, 5 bytes]"),
    )


def test_blocks_of_a_user_keep_their_order() -> None:
    found = messages(USER, assistant(LS), user(text("first"), result("r"), text("then"), text("last")))
    assert [(m.role, m.content) for m in found[2:]] == [("user", "first"), ("tool", "r"), ("user", "then\nlast")]


def test_a_reply_that_comes_back_in_pieces_is_one_message() -> None:
    whole = messages(USER, assistant(text("a"), LS, text("b")), user(result("r")))
    pieces = messages(USER, assistant(text("a")), assistant(LS, text("b")), user(result("r")))
    assert whole == pieces
    assert whole[1].content == "ab"


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (result("a"), "a"),
        (result([text("a"), text("b")]), "a\nb"),
        (result(), ""),
        (result([]), ""),
        (result("no such file", is_error=True), "[tool error]\nno such file"),
        (result(is_error=True), "[tool error]"),
        (result("a", is_error=False), "a"),
        (result([text("see"), PNG]), "see\n[image: image/png, 5 bytes]"),
        (result([{"type": "tool_reference", "tool_name": "Grep"}]), "[tool: Grep]"),
        (
            result([{"type": "search_result", "source": "s", "title": "t", "content": [text("x"), text("y")]}]),
            "[search result: t, s]\nx\ny",
        ),
        (
            result([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "body"}}]),
            "body",
        ),
    ],
)
def test_tool_results(block: dict[str, Any], said: str) -> None:
    assert messages(USER, assistant(LS), user(block))[2] == Message("tool", said, tool_call_id="toolu_1")


def test_a_result_without_its_call_is_reported() -> None:
    call = read(body(messages=[user(result("a"))]))
    assert call.conversation.messages == (Message("tool", "a", tool_call_id="toolu_1"),)
    assert call.ignored_fields == ("messages[].content[].tool_use_id",)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"type": "base64", "media_type": "image/jpeg", "data": "aGVsbG8h"}, "[image: image/jpeg, 6 bytes]"),
        ({"type": "url", "url": "https://example.com/a.png"}, "[image: https://example.com/a.png]"),
        ({"type": "file", "file_id": "file_1"}, "[image: file_1]"),
    ],
)
def test_images_are_placeholders_and_reported(source: dict[str, Any], said: str) -> None:
    call = read(body(messages=[user({"type": "image", "source": source}), assistant(LS), user(result([PNG]))]))
    assert call.conversation.messages[0].content == said
    assert call.ignored_fields == (
        "messages[].content[].content[type=image]",
        "messages[].content[type=image]",
    )


@pytest.mark.parametrize(
    ("document", "said", "reported"),
    [
        (
            {"source": {"type": "text", "media_type": "text/plain", "data": "a\nb"}, "title": "T", "context": "C"},
            "[document: T]\nC\na\nb",
            (),
        ),
        ({"source": {"type": "content", "content": "inline"}}, "inline", ()),
        ({"source": {"type": "content", "content": [text("x"), text("y")]}}, "x\ny", ()),
        (
            {"source": {"type": "base64", "media_type": "application/pdf", "data": "aGVsbG8="}, "title": "T"},
            "[document: T, application/pdf, 5 bytes]",
            ("messages[].content[type=document]",),
        ),
        (
            {"source": {"type": "url", "url": "https://example.com/a.pdf"}, "citations": {"enabled": True}},
            "[document: https://example.com/a.pdf]",
            ("messages[].content[].citations", "messages[].content[type=document]"),
        ),
    ],
)
def test_documents(document: dict[str, Any], said: str, reported: tuple[str, ...]) -> None:
    call = read(body(messages=[user({"type": "document", **document})]))
    assert call.conversation.messages == (Message("user", said),)
    assert call.ignored_fields == reported


def test_what_the_providers_own_tools_did_is_visible() -> None:
    call = read(body(messages=[
        USER,
        assistant(
            text("I search."),
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "é"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
                {"type": "web_search_result", "title": "T", "url": "u", "encrypted_content": "zzz", "page_age": None}]},
            {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_2", "content": {
                "type": "web_fetch_result", "url": "u", "content": {"type": "document", "source": {
                    "type": "base64", "media_type": "application/pdf", "data": "aGVsbG8="}}}},
            text("Found."),
        ),
        USER,
    ]))  # fmt: skip
    said = call.conversation.messages[1].content
    assert said.startswith('I search.\n[server_tool_use {"id": "srvtoolu_1", "name": "web_search", "input": {"query"')
    assert '"title": "T", "url": "u"' in said
    assert "[document: application/pdf, 5 bytes]" in said
    assert said.endswith("Found.")
    assert "zzz" not in said
    assert "aGVsbG8" not in said
    assert call.ignored_fields == (
        "messages[].content[].content.content[type=document]",
        "messages[].content[].content[].encrypted_content",
    )


def test_what_cannot_be_shown_is_reported() -> None:
    call = read(body(messages=[
        USER, assistant({"type": "redacted_thinking", "data": "zzz"}, {"type": "next_week", "x": 1}), USER,
    ]))  # fmt: skip
    assert call.conversation.messages[1] == Message("assistant", '\n[next_week {"x": 1}]\n')
    assert call.ignored_fields == (
        "messages[].content[type=next_week]",
        "messages[].content[type=redacted_thinking]",
    )
