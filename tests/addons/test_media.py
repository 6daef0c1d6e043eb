"""Images and documents of a request: where they stand, what a text model reads for them, what is refused and how."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from addons import media
from addons.conversation import Call, Conversation, Media, Message, Sampling
from addons.dialects import chat, gemini, messages, responses
from addons.errors import BadRequest
from addons.lineage import trail
from addons.media import from_base64, joined, lifted, mark, with_images
from addons.neutral import message_json

RED, BLUE = b"\x89PNG red", b"\x89PNG blue"
PDF = b"%PDF-1.7"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64(data)}"


def image(words: str, data: bytes | None = RED) -> str:
    return mark(words, "image", param="p", ignored="i", refusal="{model} is blind", media_type="image/png", data=data)


CALL = {"type": "function", "function": {"name": "look", "arguments": "{}"}}


def in_chat(parts: list[Any], result: list[Any]) -> Call:
    asked = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", **CALL}]}
    answered = {"role": "tool", "tool_call_id": "c1", "content": result}
    return chat.read({"model": "m", "messages": [{"role": "user", "content": parts}, asked, answered]})


def in_messages(parts: list[Any], result: list[Any]) -> Call:
    asked = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}
    answered = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": result}, *parts]}
    return messages.read(
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": parts}, asked, answered]}
    )


def in_responses(parts: list[Any], result: list[Any]) -> Call:
    asked = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    answered = {"type": "function_call_output", "call_id": "c1", "output": result}
    return responses.read({"model": "m", "input": [{"role": "user", "content": parts}, asked, answered]})


def in_gemini(parts: list[Any], result: list[Any]) -> Call:
    asked = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}
    answered = {"functionResponse": {"name": "look", "response": {"output": "seen"}, "parts": result}}
    contents = [{"role": "user", "parts": parts}, asked, {"role": "user", "parts": [answered]}]
    return gemini.read({"contents": contents}, "m")


ANTHROPIC = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(RED)}}
GOOGLE = {"inlineData": {"mimeType": "image/png", "data": b64(RED)}}
CHAT = {"type": "image_url", "image_url": {"url": url(RED)}}
OPENAI = {"type": "input_image", "image_url": url(RED)}
INLINE = [
    (in_chat, [{"type": "text", "text": "see "}, CHAT], [CHAT], "messages.[0].content.[1].type"),
    (in_messages, [{"type": "text", "text": "see"}, ANTHROPIC], [ANTHROPIC], "messages[0].content[1]"),
    (in_responses, [{"type": "input_text", "text": "see "}, OPENAI], [OPENAI], "input[0].content[1].type"),
    (in_gemini, [{"text": "see "}, GOOGLE], [GOOGLE], "contents[0].parts[1].inlineData"),
]


@pytest.mark.parametrize(("read", "parts", "result", "param"), INLINE)
def test_an_image_keeps_its_place(read: Callable[..., Call], parts: list[Any], result: list[Any], param: str) -> None:
    call = read(parts, result)
    holders = [message for message in call.conversation.messages if message.media]
    assert {message.role for message in holders} == {"user", "tool"}
    for message in holders:
        (found,) = message.media
        assert message.content[found.start : found.end] == "[image: image/png, 8 bytes]"
        assert (found.kind, found.media_type, found.data) == ("image", "image/png", RED)
        assert found.sha256 == hashlib.sha256(RED).hexdigest()
        assert message.images == message.media
        assert with_images(message, lambda _: "<>") == message.content.replace("[image: image/png, 8 bytes]", "<>")
    assert holders[0].media[0].param == param
    assert call.ignored_fields
    assert media.ignored_fields(call, sees=True) == ()
    assert media.ignored_fields(call, sees=False) == call.ignored_fields


@pytest.mark.parametrize(
    ("read", "parts", "result", "words"),
    [
        (*INLINE[0][:3], "Invalid content type. image_url is only supported by certain models."),
        (*INLINE[1][:3], "messages.0.content.1: 'm' does not support image input."),
        (*INLINE[2][:3], "Invalid content type. input_image is only supported by certain models."),
        (*INLINE[3][:3], "Image input modality is not enabled for models/m"),
    ],
)
def test_a_text_model_refuses_it_in_the_providers_words(
    read: Callable[..., Call], parts: list[Any], result: list[Any], words: str
) -> None:
    call = read(parts, result)
    media.check(call, sees=True, policy="refuse")
    media.check(call, sees=False, policy="placeholder")
    with pytest.raises(BadRequest) as refused:
        media.check(call, sees=False, policy="refuse")
    assert refused.value.message == words
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("read", "part"),
    [
        (in_chat, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}),
        (in_chat, {"type": "file", "file": {"filename": "a.pdf", "file_data": url(PDF, "application/pdf")}}),
        (in_chat, {"type": "input_audio", "input_audio": {"format": "wav", "data": b64(b"RIFF")}}),
        (in_messages, {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}),
        (in_messages, {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
        (in_messages, {"type": "document", "source": {"type": "base64", "media_type": "a/pdf", "data": b64(PDF)}}),
        (in_messages, {"type": "container_upload", "file_id": "file_1"}),
        (in_responses, {"type": "input_image", "image_url": "https://example.org/a.png"}),
        (in_responses, {"type": "input_image", "file_id": "file-1"}),
        (in_responses, {"type": "input_file", "filename": "a.pdf", "file_data": url(PDF, "application/pdf")}),
        (in_responses, {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
        (in_gemini, {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/a.png"}}),
        (in_gemini, {"inlineData": {"mimeType": "application/pdf", "data": b64(PDF)}}),
        (in_gemini, {"inlineData": {"mimeType": "audio/wav", "data": b64(b"RIFF")}}),
    ],
)  # fmt: skip
def test_what_no_model_here_can_see_is_named_or_refused(read: Callable[..., Call], part: dict[str, Any]) -> None:
    call = read([part], [])
    found = call.conversation.messages[0].media[0]
    assert call.conversation.messages[0].content[found.start] == "["
    assert call.conversation.messages[0].images == ()
    assert media.ignored_fields(call, sees=True) == call.ignored_fields != ()
    with pytest.raises(BadRequest):
        media.check(call, sees=True, policy="refuse")


@pytest.mark.parametrize(
    ("read", "part"),
    [
        (in_chat, {"type": "file", "file": {"file_data": url(b"notes", "text/plain")}}),
        (in_messages, {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "notes"}}),
        (in_responses, {"type": "input_file", "file_data": url(b"notes", "text/plain")}),
        (in_gemini, {"inlineData": {"mimeType": "text/plain", "data": b64(b"notes")}}),
    ],
)
def test_a_text_document_is_text(read: Callable[..., Call], part: dict[str, Any]) -> None:
    call = read([part], [])
    assert (call.conversation.messages[0].content, call.conversation.messages[0].media) == ("notes", ())
    assert call.ignored_fields == ()


@pytest.mark.parametrize(
    ("read", "part", "kind"),
    [
        (in_chat, {"type": "file", "file": {"filename": "a.txt", "file_data": url(b"notes", "text/plain")}}, "file"),
        (in_messages, {"type": "document", "title": "a.txt", "source": {"type": "text", "data": "notes"}}, "document"),
        (in_responses, {"type": "input_file", "filename": "a.txt", "file_data": url(b"notes", "text/plain")}, "file"),
        (
            in_gemini,
            {"inlineData": {"mimeType": "text/csv", "displayName": "a.txt", "data": b64(b"notes")}},
            "document",
        ),
    ],
)
def test_a_text_document_keeps_its_name(read: Callable[..., Call], part: dict[str, Any], kind: str) -> None:
    call = read([part], [])
    assert call.conversation.messages[0].content == f"[{kind}: a.txt]\nnotes"
    assert call.ignored_fields == ()


@pytest.mark.parametrize(
    ("read", "part", "path"),
    [
        (in_chat, {"type": "image_url", "image_url": {"url": "data:image/png;base64,%"}},
         "messages[0].content[0].image_url.url"),
        (in_chat, {"type": "input_audio", "input_audio": {"format": "wav", "data": "%"}},
         "messages[0].content[0].input_audio.data"),
        (in_messages, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "%"}},
         "messages[0].content[0].source.data"),
        (in_responses, {"type": "input_image", "image_url": "data:image/png;base64,%"},
         "input[0].content[0].image_url"),
        (in_gemini, {"inlineData": {"mimeType": "image/png", "data": "%"}}, "contents[0].parts[0].inlineData.data"),
    ],
)  # fmt: skip
def test_bad_base64_is_the_callers_400(read: Callable[..., Call], part: dict[str, Any], path: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read([part], [])
    assert refused.value.param == path


def test_an_image_in_an_assistants_or_a_systems_text_is_words() -> None:
    said = {"role": "model", "parts": [GOOGLE, {"text": "there"}]}
    call = gemini.read({"contents": [{"role": "user", "parts": [{"text": "draw"}]}, said]}, "m")
    assert call.conversation.messages[1].content == "[image: image/png, 8 bytes]there"
    assert call.conversation.messages[1].images == ()
    assert media.ignored_fields(call, sees=True) == call.ignored_fields != ()


def test_an_image_inside_what_a_provider_ran_is_words_at_its_place() -> None:
    fetched = {"type": "web_fetch_result", "content": ANTHROPIC}
    ran = {"type": "web_fetch_tool_result", "tool_use_id": "s1", "content": fetched}
    said = [
        {"role": "user", "content": "fetch"}, {"role": "assistant", "content": [ran]}, {"role": "user", "content": "?"},
    ]  # fmt: skip
    call = messages.read({"model": "m", "max_tokens": 9, "messages": said})
    assert '"content": "[image: image/png, 8 bytes]"' in call.conversation.messages[1].content


def test_only_a_mark_of_ours_is_taken_out() -> None:
    assert lifted(Message("user", "qabcmZm9vqabcq")).content == "qabcmZm9vqabcq"
    one = lifted(Message("user", f"a{image('[x]')}b{image('[y]', BLUE)}", reasoning=image("[r]")))
    assert (one.content, one.reasoning) == ("a[x]b[y]", "[r]")
    assert [(m.start, m.end, m.data) for m in one.media] == [(1, 4, RED), (5, 8, BLUE)]


def test_joined_messages_keep_the_places() -> None:
    one, two = lifted(Message("user", image("[x]"))), lifted(Message("user", "b" + image("[y]", BLUE)))
    both = joined(one, two, "\n\n")
    assert both.content == "[x]\n\nb[y]"
    assert with_images(both, lambda found: str(found.data)) == f"{RED!r}\n\nb{BLUE!r}"
    assert joined(Message("system"), two, "\n\n").media == two.media


def test_two_images_with_the_same_words_are_two_conversations() -> None:
    def digest(data: bytes, role: Any = "user") -> str:
        said = lifted(Message(role, image("[x]", data), tool_call_id="c"))
        return trail(Conversation((said,))).after(Message("assistant", "ok"))

    assert digest(RED) == digest(RED) != digest(BLUE)
    assert digest(RED, "tool") != digest(BLUE, "tool")


def test_a_seen_field_is_still_ignored_where_another_of_its_kind_is_not_seen() -> None:
    seen, named = lifted(Message("user", image("[x]"))), lifted(Message("user", image("[y]", None)))
    call = Call(Conversation((seen, named)), Sampling(), "m", False, ("i", "other"))
    assert media.ignored_fields(call, sees=True) == ("i", "other")
    call = Call(Conversation((seen,)), Sampling(), "m", False, ("i", "other"))
    assert media.ignored_fields(call, sees=True) == ("other",)


def test_for_the_store_without_the_bytes() -> None:
    stored = message_json(lifted(Message("user", f"a{image('[x]')}")))
    digest = hashlib.sha256(RED).hexdigest()
    assert stored["media"] == [{"start": 1, "end": 4, "kind": "image", "media_type": "image/png", "sha256": digest}]
    assert "media" not in message_json(Message("user", "a"))


def test_base64_in_either_alphabet() -> None:
    data = bytes(range(256))
    assert from_base64(base64.urlsafe_b64encode(data).decode().rstrip("=")) == data
    assert from_base64(base64.encodebytes(data).decode()) == data
    for bad in ("%", "a", "aGVsbG8=x"):
        with pytest.raises(ValueError, match=r"padding|base64"):
            from_base64(bad)


def test_a_data_url() -> None:
    assert media.data_url(Media(0, 1, "image", "image/png", b"hi")) == "data:image/png;base64,aGk="
