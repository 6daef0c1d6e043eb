"""Every field that the openai SDK can send to Chat Completions."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from openai.types.chat import completion_create_params

from addons.conversation import Call
from addons.dialects.chat import read
from addons.errors import BadRequest
from tests.addons.dialects.census import Census

STREAMING = completion_create_params.CompletionCreateParamsStreaming
WHOLE = completion_create_params.CompletionCreateParamsNonStreaming
FORGIVEN = {
    "n": "1 is what is served anyway; any other number is refused",
    "modalities": "text is what is served anyway; any other is refused",
    "tools(function) type": "needed: without it the call is refused, as is any other",
    "tool_calls (function) type": "a call without a type is one of a function",
    "max_tokens": "the older name of max_completion_tokens, which goes before it",
    "response_format(text)": "text is what is served without a format",
}
"""Fields that may be dropped, and why."""
NOT_STREAMING = {"stream": "false is the default", "stream_options": "of use in a stream only"}
REFUSED_WHOLE = {"audio": {"format": "mp3", "voice": "alloy"}, "n": 2, "modalities": ["audio"]}


FUNCTION = {"type": "function", "function": {"name": "text of name", "parameters": {"k": "of parameters"}}}
_CALL = {"id": "text of tool_call_id", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def read_among(body: dict[str, Any]) -> Call:
    """Read a sampled body among what makes it whole: a call for its result, a tool for its choice."""
    before, after = {"role": "assistant", "tool_calls": [_CALL]}, {"role": "user", "content": "x"}
    more = {"messages": [before, *body.get("messages", []), after], "tools": [FUNCTION, *body.get("tools", [])]}
    return read({**body, **more})


def mend(body: dict[str, Any]) -> None:
    """Make a sampled body one that can be read."""
    body.pop("audio", None)
    body["n"], body["modalities"] = 1, ["text"]
    body["top_logprobs"] = 2
    body["max_completion_tokens"], body["max_tokens"] = 9, 7
    body["parallel_tool_calls"] = False
    body["logit_bias"] = {"7": 1}
    body["temperature"], body["top_p"] = 0.5, 0.5
    for message in body["messages"]:
        if isinstance(message.get("content"), list):
            for part in message["content"]:
                _fill(part)
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice["allowed_tools"]["tools"] = [FUNCTION]
    if isinstance(choice, dict) and choice.get("type") == "custom":
        body["tool_choice"] = "auto"  # of a kind of tool that is reported; refused by name
    if isinstance(body.get("function_call"), dict):
        body.pop("tool_choice")


def _fill(part: dict[str, Any]) -> None:
    if "image_url" in part:
        part["image_url"]["url"] = "https://example.org/a.png"
    if "input_audio" in part:
        part["input_audio"]["data"] = "AAAA"
    if "file" in part:
        part["file"]["file_data"] = "data:application/pdf;base64,JVBERi0="


@pytest.mark.parametrize(("hint", "more"), [(STREAMING, {}), (WHOLE, NOT_STREAMING)])
def test_no_field_of_a_request_is_dropped_silently(hint: Any, more: dict[str, str]) -> None:
    census = Census(hint, read_among, mend, FORGIVEN | more)
    census.run()
    assert census.dropped == set()
    assert len(census.checked) > 150


@pytest.mark.parametrize("key", REFUSED_WHOLE)
def test_what_would_change_the_reply_is_refused(key: str) -> None:
    assert key in get_type_hints(STREAMING)
    with pytest.raises(BadRequest) as caught:
        read({"model": "m", "messages": [{"role": "user", "content": "x"}], key: REFUSED_WHOLE[key]})
    assert caught.value.param == key


def test_the_census_notices_a_field_that_is_dropped() -> None:
    def forgetful(value: Any) -> Call:
        value.pop("metadata", None)
        return read_among(value)

    census = Census(STREAMING, forgetful, mend, FORGIVEN)
    census.run()
    assert census.dropped == {"metadata"}
