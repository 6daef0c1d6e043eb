"""Every field that the anthropic SDK can send to Messages, its beta too."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_message_create_params

from addons.conversation import Call
from addons.dialects.messages import read, read_count
from addons.errors import BadRequest
from tests.addons.dialects.census import Census

FORGIVEN = {
    "(thinking) signature": "any is taken, and none is needed; the thinking itself is read",
    "source(text) media_type": "it can only be text/plain",
    "tools (custom) type": "a tool without a type is a custom one",
    "thread(create)": "it asks that the conversation be kept, as every one is",
}
"""Fields that may be dropped, and why."""

CREATE = message_create_params.MessageCreateParamsStreaming
BETA = beta_message_create_params.MessageCreateParamsStreaming
COUNT = message_count_tokens_params.MessageCountTokensParams
_REFUSED_WHOLE = ("compaction",)


def mend(body: dict[str, Any]) -> None:
    """Make a sampled body one that can be read."""
    for key in _REFUSED_WHOLE:
        body.pop(key, None)
    body["messages"] = [*body["messages"], {"role": "user", "content": "last"}]
    choice = body.get("tool_choice", {})
    if choice.get("type") in ("any", "tool"):
        body["tools"] = [{"name": choice.get("name", "t"), "input_schema": {}}]


def earlier(value: dict[str, Any]) -> dict[str, Any]:
    """What a thread keeps that `value` can continue."""
    return {
        **{key: value[key] for key in ("system", "tools") if key in value},
        "messages": [{"role": "user", "content": "earlier"}],
    }


def created(body: dict[str, Any]) -> Call:
    """Read a call."""
    return read(body, stored=lambda _: earlier(body))


def counted(body: dict[str, Any]) -> Call:
    """Read a count."""
    return read_count(body, stored=lambda _: earlier(body))


@pytest.mark.parametrize(("hint", "reader"), [(CREATE, created), (BETA, created), (COUNT, counted)])
def test_no_field_of_a_request_is_dropped_silently(hint: Any, reader: Any) -> None:
    census = Census(hint, reader, mend, FORGIVEN)
    census.run()
    assert census.dropped == set()
    assert len(census.checked) > 1000


@pytest.mark.parametrize("key", _REFUSED_WHOLE)
def test_what_would_change_the_reply_is_refused(key: str) -> None:
    assert key in get_type_hints(BETA)
    value = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}], key: {"type": "create"}}
    with pytest.raises(BadRequest, match=f"^{key}: Extra inputs are not permitted$"):
        read(value)


def test_the_census_notices_a_field_that_is_dropped() -> None:
    def forgetful(value: Any) -> Call:
        value.pop("metadata", None)
        return created(value)

    census = Census(CREATE, forgetful, mend, FORGIVEN)
    census.run()
    assert census.dropped == {"metadata", "metadata user_id"}
