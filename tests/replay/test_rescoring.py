from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from replay.reader import Reader
from replay.rescoring import Scorer, ScoringError, rescore


def server(logprob: Any, *, window: int = 100, calls: list[dict[str, Any]] | None = None) -> httpx.MockTransport:
    """vLLM's answers, as 0.32 gives them; `logprob(place, id)` is that of an id of a prompt."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m", "max_model_len": window}]})
        if request.url.path == "/weight_info":
            return httpx.Response(200, json={"weight_version": "3"})
        body = json.loads(request.content)
        if calls is not None:
            calls.append(body)
        ids = body["prompt"]
        scored: list[Any] = [None]
        scored += [{str(number): {"logprob": logprob(place, number)}} for place, number in enumerate(ids[1:], 1)]
        return httpx.Response(200, json={"choices": [{"text": "", "prompt_logprobs": scored}]})

    return httpx.MockTransport(answer)


@pytest.fixture
def session(make: Any) -> Any:
    """Two turns in a row at temperature 1, one at 0.5, one cut by top_p, one without logprobs."""
    full = {"temperature": 1.0, "top_p": 1.0}
    session_id = make.session("s")
    first = make.turn(session_id, make.end([7, 8], logprobs=[-0.5, -1.5]), sampling_sent=full)
    make.turn(session_id, make.end([9], logprobs=[-2.0]), parent_id=first, prompt_suffix=[4], prompt_length=6,
              sampling_sent=full)  # fmt: skip
    make.turn(session_id, drift_reason="subagent")
    make.turn(session_id, drift_reason="subagent", sampling_sent={**full, "top_p": 0.9})
    make.turn(session_id, make.end([1], logprobs=[], untrainable="missing"), drift_reason="subagent",
              sampling_sent=full)  # fmt: skip
    return make


@pytest.mark.usefixtures("session")
def test_drift_by_turn(reader: Reader) -> None:
    calls: list[dict[str, Any]] = []
    recorded = {3: -0.5, 4: -1.75, 6: -2.0}
    with Scorer("http://x", server(lambda place, _: recorded.get(place, -9.0), calls=calls)) as scorer:
        drifts = rescore(reader, reader.session("s"), scorer)
    assert (scorer.model, scorer.weight_version) == ("m", "3")
    assert [call["prompt"] for call in calls] == [[1, 2, 3, 7, 8, 4, 9]]  # a path is scored once
    first, second, *others = drifts
    assert (first.turn, first.worst, first.at, first.mean, first.shift) == (1, 0.25, 1, 0.125, 0.125)
    assert (second.turn, second.worst, second.tokens) == (2, 0.0, 1)
    assert [drift.skipped for drift in others] == [
        "not compared: sampled at temperature 0.5, and vLLM scores at 1",
        "not compared: sampled with top_p",
        "its logprobs are not recorded",
    ]


@pytest.mark.usefixtures("session")
def test_what_does_not_fit_the_window_is_said(reader: Reader) -> None:
    with Scorer("http://x", server(lambda place, _: -0.5, window=7)) as scorer:
        drifts = rescore(reader, reader.session("s"), scorer)
    assert drifts[0].skipped is None
    assert "does not fit the server's window of 7" in str(drifts[1].skipped)


def test_what_is_no_vllm() -> None:
    refusing = httpx.MockTransport(lambda request: httpx.Response(404, text="nothing here"))
    with pytest.raises(ScoringError, match="answers 404 to /v1/models: nothing here"):
        Scorer("http://x", refusing).__enter__()


@pytest.mark.usefixtures("session")
def test_the_command(replay: Any) -> None:
    assert (
        "no vLLM answers at http://127.0.0.1:9"
        in replay("verify", "s", "--against", "http://127.0.0.1:9", code=1).stderr
    )
