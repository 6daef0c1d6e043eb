"""The formats over published tokenizers and chat templates: chosen by proof, and right whatever the merges."""

from __future__ import annotations

import json
from pathlib import Path
from unicodedata import is_normalized

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from addons.replies import parser_for
from tests.addons.kit import said
from tests.addons.parsers.families import FAMILIES, Model
from tests.addons.parsers.samples import content, joined, read, replies
from tests.addons.real_models import real_model, templates_of, tokenizer_names

_FAMILY = {  # by the name of the tokenizer: template, family
    "qwen3": ("qwen3", "hermes"),
    "qwen3_6": ("qwen3_6", "qwen3.5"),
    "llama3_1": ("llama3_2", "llama3"),
    "deepseek_v3": ("deepseekv3", "deepseek-v3"),
    "gpt_oss": ("gptoss", "gpt-oss"),
}


def names() -> list[object]:
    """Those that a family is known for; what must be fetched is marked."""
    known = [name for name in tokenizer_names() if (name if isinstance(name, str) else name.values[0]) in _FAMILY]  # type: ignore[attr-defined]
    assert len(known) == len(_FAMILY)
    return known


@pytest.fixture(scope="module", params=names())
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    template, family = _FAMILY[request.param]
    found = templates_of(request.param)
    if template not in found:
        pytest.skip("TRL is not installed")
    folder: Path = tmp_path_factory.mktemp(request.param)
    return Model(FAMILIES[family], real_model(folder, request.param, found[template]))


def test_the_parser_is_proven(model: Model) -> None:
    choice = parser_for(model.files)
    assert (choice.name, choice.streams) == (model.family.parser, True)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_was_meant_is_what_is_read(model: Model, data: st.DataObject) -> None:
    # Qwen's tokenizer composes characters.
    composed = replies(model).filter(lambda reply: is_normalized("NFC", json.dumps(reply, ensure_ascii=False)))
    text, reasoning, calls = data.draw(composed)
    ids = model.sampled(text, reasoning, calls)
    deltas, reply = read(model, ids)
    assert said(deltas) == reply.message
    assert content(reply) == (text, reasoning, calls)
    assert not reply.malformed
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))
    assert joined(read(model, ids, cuts=cuts)[0]) == joined(deltas)
    upto = data.draw(st.integers(0, len(ids)))
    got = content(read(model, ids[:upto], finish="length")[1])[2]
    assert got == calls[: len(got)]
    if model.family.oracle is not None:
        assert content(reply) == model.read_by_library(ids)
