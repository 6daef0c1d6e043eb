from __future__ import annotations

from typing import Any

import pytest

from addons.conversation import Message, Sampling, ToolChoice
from addons.dialects.messages import read, read_count
from tests.addons.dialects.messages_bodies import BASH, LS, USER, assistant, body, result, text, user


def test_a_plain_call() -> None:
    call = read(body())
    assert call.conversation.messages == (Message("user", "hi"),)
    assert (call.model, call.stream, call.ignored_fields) == ("m", False, ())
    assert call.sampling == Sampling(max_tokens=64)
    assert (call.tool_choice, call.parallel_tool_calls, call.constraint) == (ToolChoice(), True, None)
    assert call.conversation.template_kwargs == {}


def test_the_url_may_name_the_model() -> None:
    without = {key: value for key, value in body(anthropic_version="vertex-2023-10-16").items() if key != "model"}
    call = read(without, "claude-x@1")
    assert (call.model, call.ignored_fields) == ("claude-x@1", ("anthropic_version",))
    assert read(body(), "other").model == "m"


def test_sampling_is_read_in_full() -> None:
    call = read(body(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["</done>", "\n\n"], stream=True))
    assert call.sampling.asked() == {
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "max_tokens": 64, "stop": ["</done>", "\n\n"],
    }  # fmt: skip
    assert call.stream


def test_nothing_is_dropped_silently() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    call = read(body(
        brand_new={"a": 1}, metadata={"user_id": "u"}, service_tier="auto", container="c", betas=["b"],
        mcp_servers=[{"type": "url", "url": "u", "name": "n"}], context_management={"edits": []}, **cached,
        system=[{**text("s"), **cached}],
        messages=[user({**text("x"), **cached}), assistant({**LS, **cached}), user(result("r", **cached))],
        tools=[{**BASH, **cached, "strict": True}, {"type": "web_search_20250305", "name": "web_search", **cached}],
        output_config={"effort": "high"}, thinking={"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
    ))  # fmt: skip
    assert call.ignored_fields == (
        "betas", "brand_new", "cache_control", "container", "context_management", "mcp_servers",
        "messages[].content[].cache_control", "metadata", "output_config.effort", "service_tier",
        "system[].cache_control", "thinking.budget_tokens", "thinking.display", "tools[].cache_control",
        "tools[].strict", "tools[type=web_search_20250305]",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("thinking", "variables", "reported"),
    [
        ({"type": "disabled"}, {"enable_thinking": False}, ()),
        ({"type": "adaptive"}, {"enable_thinking": True}, ()),
        ({"type": "enabled", "budget_tokens": 1024}, {"enable_thinking": True}, ("thinking.budget_tokens",)),
        ({"type": "between_tools"}, {"enable_thinking": True}, ("thinking[type=between_tools]",)),
    ],
)
def test_thinking(thinking: dict[str, Any], variables: dict[str, Any], reported: tuple[str, ...]) -> None:
    call = read(body(thinking=thinking))
    assert call.conversation.template_kwargs == variables
    assert call.ignored_fields == reported


def test_output_formats() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    assert read(body(output_config={"format": form})).constraint == {"json": {"type": "object"}}
    assert read(body(output_format=form)).constraint == {"json": {"type": "object"}}
    assert read(body(output_config={})).constraint is None


def test_a_count_needs_no_limit_and_may_end_with_an_assistant() -> None:
    history = [USER, {"role": "assistant", "content": "a"}]
    counted = read_count({"model": "m", "messages": history, "tools": [BASH]})
    assert counted.conversation.messages == (Message("user", "hi"), Message("assistant", "a"))
    assert counted.conversation.tools
