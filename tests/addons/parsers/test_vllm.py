"""vLLM's own tool parsers read the same calls, whole, from the same text. Importing vLLM takes a while."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.addons.parsers.families import FAMILIES, Call, Model, make, tools_json
from tests.addons.parsers.samples import content, read, replies

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

_THEIRS = {
    "hermes": "hermes",
    "qwen3.5": "qwen3_coder",
    "glm4.5": "glm45",
    "glm4.7": "glm47",
    "lfm2": "lfm2",
    "pythonic": "pythonic",
    "llama3": "llama3_json",
    "llama3 tag": "llama3_json",
    "deepseek-v3": "deepseek_v3",
    "deepseek-v3.1": "deepseek_v31",
    "kimi-k2": "kimi_k2",
    "mistral": "mistral",
}


@pytest.fixture(scope="module", params=_THEIRS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return make(tmp_path_factory.mktemp("family"), FAMILIES[request.param])


def theirs(model: Model, name: str, written: str) -> list[Call]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    request = ChatCompletionRequest(
        model="m", messages=[{"role": "user", "content": "hi"}], tools=tools_json(), tool_choice="auto"
    )
    parser = ToolParserManager.get_tool_parser(name)(model.files.tokenizer, request.tools)
    found = parser.extract_tool_calls(written, request)
    return [(call.function.name, json.loads(call.function.arguments)) for call in found.tool_calls]


def plain(calls: list[Call], *, python: bool) -> bool:
    """What their parsers, which look at the text alone, can be expected to read."""
    text = json.dumps(calls, ensure_ascii=False)
    words = [word for name, arguments in calls for word in (name, *arguments)]
    return not any(mark in text for mark in ("<", "[TOOL", "\\u0000")) and (
        not python or all(word.isidentifier() and word.isascii() and word != "from" for word in words)
    )


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_vllm_reads_the_same_calls(model: Model, data: st.DataObject, request: pytest.FixtureRequest) -> None:
    parser = _THEIRS[request.node.callspec.params["model"]]
    python = parser in ("lfm2", "pythonic")
    drawn: Any = data.draw(replies(model).filter(lambda reply: bool(reply[2]) and plain(reply[2], python=python)))
    calls: list[Call] = drawn[2]
    written = model.family.write("", "", calls)
    for stop in model.family.stops:
        written = written.removesuffix(stop)
    assert theirs(model, parser, written) == calls
    assert content(read(model, model.sampled("", "", calls))[1])[2] == calls


def test_the_parsers_that_are_asked_exist(tmp_path: Path) -> None:
    assert _THEIRS.keys() <= FAMILIES.keys()
