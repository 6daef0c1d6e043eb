from __future__ import annotations

import pytest

from addons.body import read_json
from addons.errors import BadRequest


def test_plain_json() -> None:
    sent, readable = read_json(b'{"a": [1, 2.5, null], "b": "\\ud83d\\ude80"}')
    assert sent == {"a": [1, 2.5, None], "b": "🚀"}
    assert readable is sent


def test_half_a_character_is_legal_json_and_reads_as_a_replacement() -> None:
    sent, readable = read_json(rb'{"k": ["cut \ud83d"], "ok": "\ud83d\ude80"}')
    assert sent == {"k": ["cut \ud83d"], "ok": "🚀"}
    assert readable == {"k": ["cut �"], "ok": "🚀"}


def test_numbers_beyond_64_bits() -> None:
    assert read_json(b'{"n": 123456789012345678901234567890}')[0]["n"] == 123456789012345678901234567890


@pytest.mark.parametrize("raw", [b"", b"{", b"{'a': 1}", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="could not parse the JSON body"):
        read_json(raw)


def test_half_a_character_too_deep_to_be_mended_is_refused() -> None:
    raw = b'{"a":' * 1000 + rb'"\ud83d"' + b"}" * 1000
    with pytest.raises(BadRequest, match="nested too deeply"):
        read_json(raw)
