from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from addons.decode import Detokeniser, Vocabulary
from addons.model import ModelError, ModelFiles
from addons.stops import StopStrings
from tests.addons.kit import byte_level, chatml, model_files


@pytest.fixture(scope="module", params=["byte_level", "byte_fallback"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return chatml(tmp_path_factory.mktemp("model"), request.param)


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_ids_one_at_a_time_are_the_text(model: ModelFiles, text: str) -> None:
    detokeniser = Detokeniser(Vocabulary(model))
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    assert "".join(map(detokeniser.feed, ids)) == text


def test_what_is_no_character_is_replaced_and_what_follows_is_not_lost(model: ModelFiles) -> None:
    vocabulary = Vocabulary(model)
    rocket = [number for number in range(600) if vocabulary.spelling(number) == b"\xf0"][:1]
    detokeniser = Detokeniser(vocabulary)
    [a] = model.tokenizer.encode("a", add_special_tokens=False)
    assert "".join(map(detokeniser.feed, [*rocket, a, *rocket, *rocket, a])) == "\ufffda\ufffd\ufffda"


def test_an_id_that_is_only_padding_says_nothing(model: ModelFiles) -> None:
    assert Vocabulary(model).spelling(10**6) == b""


def test_a_decoder_of_another_kind_is_refused(tmp_path: Path) -> None:
    tokenizer = byte_level(("<|im_end|>",))
    tokenizer.decoder = decoders.WordPiece()
    model = model_files(tmp_path, tokenizer, "{{- messages[0].content }}", "<|im_end|>")
    with pytest.raises(ModelError, match=r"decoder of kind \['WordPiece'\], which is not supported"):
        Vocabulary(model)


@given(
    text=st.text("ab<>", max_size=30),
    stops=st.lists(st.text("ab<>", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_stop_strings_wherever_the_text_is_cut(text: str, stops: list[str], cuts: list[int]) -> None:
    """What is said ends before the stop that is complete first, and never holds one."""
    finder = StopStrings(stops)
    ends = [*sorted(min(cut, len(text)) for cut in cuts), len(text)]
    said, start = "", 0
    for end in range(len(text) + 1):  # a character at a time: what is complete first is so in the text
        said += finder.feed(text[start:end])
        start = end
        if finder.found is not None:
            break
    said += finder.flush() if finder.found is None else ""
    complete = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in stops if stop in text]
    _, at, first = min(complete, default=(0, len(text), None))
    assert (finder.found, said) == (first, text[:at])
    again, spoken, start = StopStrings(stops), "", 0
    for end in ends:
        if again.found is None:
            spoken += again.feed(text[start:end])
        start = end
    spoken += again.flush() if again.found is None else ""
    assert (again.found, spoken) == (finder.found, said)
