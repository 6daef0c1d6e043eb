from __future__ import annotations

import pytest

from replay.compare import first_difference
from replay.volatile import Volatile

CODEX = 'Script completed\nWall time {} seconds\nOutput:\n\n{{"chunk_id":"{}","wall_time_seconds": {}, "n": {}}}'


def test_what_codex_says_of_the_moment_is_no_difference() -> None:
    volatile = Volatile()
    one, other, third = (
        {"role": "tool", "content": CODEX.format(*values)}
        for values in (("0.3", "a3db87", "0.31", 1), ("12.25", "ad33ce0", "12.2", 1), ("0.3", "a3db87", "0.31", 2))
    )
    assert first_difference([volatile.message(one)], [volatile.message(other)]) is None
    found = first_difference([volatile.message(one)], [volatile.message(third)])
    assert found is not None
    byte = volatile.place(third["content"], found.byte)
    assert third["content"].encode()[byte:].startswith(b"2}")


def test_what_a_model_says_is_compared_whole() -> None:
    said = {"role": "assistant", "content": "Wall time: 3 seconds"}
    assert Volatile().message(said) is said


def test_more_patterns() -> None:
    assert Volatile(["p[0-9]+", "q"]).without("a p12 q b") == "a   b"
    assert Volatile([]).without("Wall time: 3 seconds") == "Wall time: 3 seconds"
    with pytest.raises(ValueError, match="no regular expression"):
        Volatile(["("])


def test_places_are_bytes_of_the_text_as_it_is() -> None:
    volatile = Volatile(["é+"])
    assert [volatile.place("aéébéc", byte) for byte in (0, 1, 2)] == [0, 5, 8]
