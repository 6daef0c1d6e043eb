from __future__ import annotations

from typing import Any

import pytest

from addons.dialects.messages import error_body, read
from addons.errors import BadRequest
from tests.addons.dialects.messages_bodies import BASH, LS, USER, assistant, body, result, user


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"model": None}, "model", "model: Field required"),
        ({"model": 3}, "model", "model: Input should be a valid string"),
        ({"max_tokens": None}, "max_tokens", "max_tokens: Field required"),
        ({"max_tokens": -1}, "max_tokens", "max_tokens: Input should be greater than or equal to 0"),
        ({"max_tokens": "9"}, "max_tokens", "max_tokens: Input should be a valid number"),
        ({"messages": None}, "messages", "messages: Field required"),
        ({"messages": []}, "messages", "messages: at least one message is required"),
        ({"messages": ["x"]}, "messages[0]", "messages.0: Input should be a valid dictionary"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "messages.0.role: Field required"),
        (
            {"messages": [{"role": "wizard", "content": "x"}]},
            "messages[0].role",
            "messages.0.role: Input should be 'user', 'assistant' or 'system'",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "messages.0.content: Field required"),
        (
            {"messages": [{"role": "user", "content": {}}]},
            "messages[0].content",
            "messages.0.content: Input should be a string or an array of blocks",
        ),
        (
            {"messages": [user({"text": "x"})]},
            "messages[0].content[0].type",
            "messages.0.content.0.type: Field required",
        ),
        (
            {"messages": [user({"type": "text"})]},
            "messages[0].content[0].text",
            "messages.0.content.0.text: Field required",
        ),
        (
            {"messages": [USER, assistant({**LS, "input": "ls"}), USER]},
            "messages[1].content[0].input",
            "messages.1.content.0.input: Input should be a valid dictionary",
        ),
        (
            {"messages": [user(result([{"type": "image"}]))]},
            "messages[0].content[0].content[0].source",
            "messages.0.content.0.content.0.source: Field required",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": "The answer is "}]},
            "messages",
            "messages: final assistant content cannot end with trailing whitespace",
        ),
        ({"temperature": 1.5}, "temperature", "temperature: Input should be less than or equal to 1"),
        ({"temperature": "hot"}, "temperature", "temperature: Input should be a valid number"),
        ({"top_p": -0.5}, "top_p", "top_p: Input should be greater than or equal to 0"),
        ({"top_k": -1}, "top_k", "top_k: Input should be greater than or equal to 0"),
        ({"top_k": 1.5}, "top_k", "top_k: Input should be a valid integer"),
        (
            {"stop_sequences": [""]},
            "stop_sequences",
            "stop_sequences: each stop sequence must contain at least one character",
        ),
        ({"stream": "yes"}, "stream", "stream: Input should be a valid boolean"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "thinking.budget_tokens: Field required"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 5}},
            "thinking.budget_tokens",
            "thinking.budget_tokens: Input should be greater than or equal to 1024",
        ),
        (
            {"thinking": {"type": "deep"}},
            "thinking.type",
            "thinking.type: Input should be one of 'enabled', 'adaptive', 'between_tools', 'disabled', not 'deep'",
        ),
        (
            {"tool_choice": {"type": "any"}},
            "tool_choice",
            "tool_choice: tool_choice may only be specified while providing tools.",
        ),
        (
            {"tools": [BASH], "tool_choice": {"type": "tool", "name": "g"}},
            "tool_choice.name",
            "tool_choice.name: Tool 'g' not found in provided tools",
        ),
        ({"tools": [BASH], "tool_choice": {"type": "tool"}}, "tool_choice.name", "tool_choice.name: Field required"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema", "tools.0.input_schema: Field required"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name", "tools.0.name: Field required"),
        ({"tools": [BASH, BASH]}, "tools", "tools: Tool names must be unique."),
        (
            {"output_config": {"format": {"type": "yaml"}}},
            "output_config.format.type",
            "output_config.format.type: Input should be 'json_schema', not 'yaml'",
        ),
        (
            {"thread": {"type": "continue"}},
            "thread.previous_message_id",
            "thread.previous_message_id: Field required",
        ),
        (
            {"thread": {"type": "fork"}},
            "thread.type",
            "thread.type: Input should be 'create' or 'continue', not 'fork'",
        ),
        (
            {"thread": {"type": "create", "for": 3}},
            "thread.for",
            "thread.for: Extra inputs are not permitted",
        ),
        ({"compaction": {"type": "summarize"}}, "compaction", "compaction: Extra inputs are not permitted"),
    ],
)
def test_bad_input_names_the_field_in_the_providers_words(change: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read({**body(), **change})
    assert caught.value.param == param
    assert error_body(caught.value) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": words},
    }


def test_a_body_that_is_no_object() -> None:
    with pytest.raises(BadRequest, match="body: Input should be a valid dictionary"):
        read([])
