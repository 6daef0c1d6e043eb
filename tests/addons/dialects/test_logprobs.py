"""Logprobs of the sampled tokens, and the likeliest beside them, where a harness asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.addons.dialects.served import Served
from tests.addons.dialects.speakers.base import events

CHAT, GEMINI = "/v1/chat/completions", "/v1beta/models/g:generateContent"
USER = {"role": "user", "content": "go"}


def likeliest(ids: Sequence[int], count: int) -> list[dict[str, float]]:
    """What vLLM reports of each place with `logprobs: count`: the sampled token and the likeliest, by id."""
    return [{f"token_id:{number}": -0.25} | {f"token_id:{300 + n}": -1.0 - n for n in range(count)} for number in ids]


@pytest.fixture
def served(served: Served) -> Iterator[Served]:
    served.engine.likeliest = likeliest
    yield served
    served.engine.likeliest = None


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], "logprobs": True, **more}


def chosen(got: Any, *, stream: bool) -> list[dict[str, Any]]:
    """The entries of a Chat reply."""
    if not stream:
        return list(got.said["choices"][0]["logprobs"]["content"])
    choices = [c for kind, data in events(got.response.content) if data != "[DONE]" for c in data["choices"]]
    return [entry for choice in choices for entry in (choice["logprobs"] or {}).get("content") or ()]


@pytest.mark.parametrize("stream", [False, True])
def test_chat_logprobs_of_what_was_sampled(served: Served, stream: bool) -> None:
    got = served.call(CHAT, chat(stream=stream), "é two")
    entries = chosen(got, stream=stream)
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == "é two"
    assert [entry["logprob"] for entry in entries] == [-0.25] * (got.turn.n_sampled - 1), "all but the end of turn"
    assert all(entry["top_logprobs"] == [] for entry in entries)
    assert got.sent["logprobs"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_chat_top_logprobs_are_the_likeliest_in_order(served: Served, stream: bool) -> None:
    got = served.call(CHAT, chat(stream=stream, top_logprobs=2), "one two")
    assert (got.sent["logprobs"], got.sent["return_tokens_as_token_ids"]) == (2, True)
    assert got.turn.sampling_sent["logprobs"] == 2
    assert got.turn.untrainable is None
    for entry in chosen(got, stream=stream):
        first, second = entry["top_logprobs"]
        assert (first["token"], first["logprob"]) == (entry["token"], -0.25)
        assert second["logprob"] == -1.0
    assert got.turn.ignored_fields == []


def test_chat_without_asking_there_are_none(served: Served) -> None:
    got = served.call(CHAT, {"model": "m", "messages": [USER]})
    assert got.said["choices"][0]["logprobs"] is None


def test_chat_top_logprobs_need_logprobs(served: Served) -> None:
    got = served.call(CHAT, {"model": "m", "messages": [USER], "top_logprobs": 2})
    assert "needs 'logprobs'" in got.refused()


@pytest.mark.parametrize("stream", [False, True])
def test_responses_logprobs_are_with_the_text(served: Served, stream: bool) -> None:
    body = {
        "model": "m",
        "input": "go",
        "stream": stream,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
    }
    got = served.call("/v1/responses", body, "one two")
    response = events(got.response.content)[-1][1]["response"] if stream else got.said
    entries = response["output"][0]["content"][0]["logprobs"]
    assert "".join(entry["token"] for entry in entries) == "one two"
    for entry in entries:
        first, second = entry["top_logprobs"]
        assert (first["token"], first["logprob"], second["logprob"]) == (entry["token"], -0.25, -1.0)
    assert got.turn.ignored_fields == []


def test_responses_top_logprobs_without_a_place_for_them_are_reported(served: Served) -> None:
    got = served.call("/v1/responses", {"model": "m", "input": "go", "top_logprobs": 2})
    assert got.turn.ignored_fields == ["top_logprobs"]


def test_gemini_logprobs_result(served: Served) -> None:
    config = {"responseLogprobs": True, "logprobs": 2}
    body = {"contents": [{"parts": [{"text": "go"}]}], "generationConfig": config}
    got = served.call(GEMINI, body, "one two")
    [candidate] = got.said["candidates"]
    result = candidate["logprobsResult"]
    assert "".join(entry["token"] for entry in result["chosenCandidates"]) == "one two"
    for place, entry in zip(result["topCandidates"], result["chosenCandidates"], strict=True):
        assert place["candidates"][0] == entry
        assert place["candidates"][1]["logProbability"] == -1.0
    assert candidate["avgLogprobs"] == -0.25
    assert got.turn.ignored_fields == []
