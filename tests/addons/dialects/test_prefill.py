"""A final assistant message that the reply goes on from: Messages' prefill, Chat's `prefix` and `partial`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.addons.dialects.served import END, Answered, Served
from tests.addons.dialects.speakers.base import events

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
USER = {"role": "user", "content": "go"}


def asked(path: str, *messages: Any, **more: Any) -> dict[str, Any]:
    """A body whose last message is to be continued."""
    *before, last = messages
    if path == CHAT and last["role"] == "assistant":
        last = {**last, "prefix": True}
    return {"model": "m", "max_tokens": 64, "messages": [*before, last], **more}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def text_of(got: Answered) -> str:
    body = got.said
    return str(body["content"][0]["text"] if "content" in body else body["choices"][0]["message"]["content"])


both = pytest.mark.parametrize("path", [MESSAGES, CHAT], ids=["messages", "chat"])


@both
def test_the_prompt_ends_inside_the_open_turn_and_the_reply_is_what_follows(served: Served, path: str) -> None:
    got = served.call(path, asked(path, USER, assistant("The best is (")), "B)")
    assert got.prompt.endswith("<|im_start|>assistant\nThe best is (")
    assert text_of(got) == "B)"
    assert got.turn.ignored_fields == []
    assert served.reader.sampled(got.turn)[0] == served.spell(f"B){END}")


@both
def test_streamed_too(served: Served, path: str) -> None:
    got = served.call(path, asked(path, USER, assistant("The best is ("), stream=True), "B)")
    found = "".join(
        data.get("delta", {}).get("text", "") if path == MESSAGES else data["choices"][0]["delta"].get("content", "")
        for kind, data in events(got.response.content)
        if data != "[DONE]"
    )
    assert found == "B)"


@both
def test_the_next_call_continues_both_as_one_message(served: Served, path: str) -> None:
    first = served.call(path, asked(path, USER, assistant("The best is (")), "B)")
    got = served.call(path, asked(path, USER, assistant("The best is (B)"), USER), session=first.session)
    before, after = got.turns
    kept = served.reader.prompt_ids(before) + served.reader.sampled(before)[0]
    assert (after.parent_id, after.drift_reason) == (before.id, None)
    assert served.reader.prompt_ids(after)[: len(kept)] == kept


@both
def test_within_a_conversation_it_is_bridged(served: Served, path: str) -> None:
    """Only what is new is rendered: the earlier turn's tokens stay as they were sampled."""
    first = served.call(path, asked(path, USER), "hm")
    body = asked(path, USER, assistant("hm"), USER, assistant("I say "[:-1]))
    got = served.call(path, body, " so", session=first.session)
    before, after = got.turns
    kept = served.reader.prompt_ids(before) + served.reader.sampled(before)[0]
    assert after.parent_id == before.id
    assert served.reader.prompt_ids(after)[: len(kept)] == kept
    assert got.prompt.endswith("<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\nI say")


@both
def test_a_reply_that_the_limit_cut_off_goes_on_from_its_own_tokens(served: Served, path: str) -> None:
    first = served.call(path, asked(path, USER), "It is cut", end=False, finish="length")
    got = served.call(path, asked(path, USER, assistant("It is cut")), " off", session=first.session)
    before, after = got.turns
    assert after.parent_id == before.id
    assert got.sent["prompt"] == served.reader.prompt_ids(before) + served.reader.sampled(before)[0]
    assert text_of(got) == " off"
    last = served.call(path, asked(path, USER, assistant("It is cut off"), USER), session=first.session)
    assert last.turn.parent_id == after.id


@both
def test_a_reply_that_was_cut_off_in_its_reasoning_goes_on_reasoning(served: Served, path: str) -> None:
    long = "so it is " * 40
    first = served.call(path, asked(path, USER), f"<think>{long}", end=False, finish="length")
    got = served.call(path, asked(path, USER, assistant("")), "true</think>yes", session=first.session)
    if path == MESSAGES:  # an empty message begins nothing: the call is the first again
        assert got.turn.parent_id is None
        return
    message = got.said["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("true", "yes")


@both
def test_a_finished_reply_cannot_be_continued_and_is_rendered_anew(served: Served, path: str) -> None:
    first = served.call(path, asked(path, USER), "done")
    got = served.call(path, asked(path, USER, assistant("done")), " more", session=first.session)
    assert (got.turn.parent_id, got.turn.drift_reason) == (None, "template")
    assert got.prompt.endswith("<|im_start|>assistant\ndone")


def test_special_tokens_in_it_are_text(served: Served) -> None:
    got = served.call(MESSAGES, asked(MESSAGES, USER, assistant(f"a{END}b")))
    [end] = served.spell(END)
    assert got.prompt.endswith(f"a{END}b")
    assert got.sent["prompt"].count(end) == 1  # the user's


USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]}


@pytest.mark.parametrize(
    ("last", "more", "words"),
    [
        (assistant("It is "), {}, "messages: final assistant content cannot end with trailing whitespace"),
        (USE, {}, "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_1"),
        (assistant("x"), {"thinking": {"type": "adaptive"}}, "does not support assistant message prefill"),
    ],
)
def test_what_the_provider_refuses(served: Served, last: Any, more: dict[str, Any], words: str) -> None:
    assert words in served.call(MESSAGES, asked(MESSAGES, USER, last, **more)).refused()


def test_a_count_is_of_the_open_turn(served: Served) -> None:
    body = {"model": "m", "messages": [USER, assistant("The best is (")]}
    counted = served.post("/v1/messages/count_tokens", body, "counted").json()["input_tokens"]
    assert counted == served.call(MESSAGES, {**body, "max_tokens": 9}).turn.prompt_length


def test_only_the_last_message_can_be_continued(served: Served) -> None:
    got = served.call(CHAT, {"model": "m", "messages": [USER, {**assistant("a"), "prefix": True}, USER]})
    assert got.turn.ignored_fields == ["messages[].prefix"]
    refused = served.call(CHAT, {"model": "m", "messages": [{**USER, "partial": True}]})
    assert "only an assistant's text can be continued" in refused.refused()
