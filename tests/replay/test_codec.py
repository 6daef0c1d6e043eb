from __future__ import annotations

import json
import math
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import codec

# Any text Python can hold, lone surrogates included; integers of any size; no NaN.
texts = st.text(st.characters(exclude_categories=[]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)


def exact(value: object) -> str:
    """A form that tells 1 from 1.0 and True, and the order of keys."""
    return repr(value)


@given(json_values)
def test_json_comes_back_value_for_value(value: object) -> None:
    assert exact(codec.loads(codec.dumps(value))) == exact(value)


@given(json_values)
def test_bodies_of_any_json_writer_are_read_as_the_standard_library_reads_them(value: object) -> None:
    body = json.dumps(value).encode()
    assert exact(codec.loads(body)) == exact(json.loads(body))


@pytest.mark.parametrize(
    "number", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30, 9999999999999999999, -9999999999999999999]
)
def test_integers_beyond_64_bits_stay_integers(number: int) -> None:
    value = codec.loads(f'{{"n": {number}}}')
    assert value == {"n": number}
    assert isinstance(value["n"], int)
    assert codec.loads(codec.dumps(value)) == value


def test_a_lone_surrogate_survives_and_is_stored_as_its_escape() -> None:
    value = codec.loads(rb'{"text": "cut \ud83d"}')
    assert value == {"text": "cut \ud83d"}
    assert codec.dumps(value) == rb'{"text":"cut \ud83d"}'


@pytest.mark.parametrize("depth", [200, 300, 900])
def test_deep_nesting(depth: int) -> None:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    assert codec.loads(codec.dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "[Infinity]", '{"a": 1e400}', "[-1e999]", "[1,]", "[" * 200_000, "\ufeff{}", b"\xff", "'a'"],
)
def test_what_is_not_json_is_refused_with_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        codec.loads(text)


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": {"b": -math.inf}}, [None, "\ud800", math.nan]])
def test_nan_is_never_written(value: object) -> None:
    with pytest.raises(ValueError, match=r"is not JSON|not JSON compliant"):
        codec.dumps(value)


@pytest.mark.parametrize("value", [{1: 2}, [{None: "\ud800"}], {"a": {2**70: 1}}])
def test_keys_are_never_turned_into_strings(value: object) -> None:
    with pytest.raises(TypeError, match="keys are strings"):
        codec.dumps(value)


@given(st.lists(st.integers(0, 2**31 - 1)))
def test_token_ids_come_back(ids: list[int]) -> None:
    assert codec.unpack_ids(codec.pack_ids(ids)) == ids


def test_token_ids_are_little_endian_int32() -> None:
    assert codec.decompress(codec.pack_ids([1, 258])) == b"\x01\0\0\0\x02\x01\0\0"
    assert codec.unpack_ids(codec.pack_ids(array("i", [5]))) == [5]


@pytest.mark.parametrize("ids", [[-1], [2**31], [3, 2**40]])
def test_what_is_no_token_id_is_refused(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="token ids must lie in"):
        codec.pack_ids(ids)


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_float32_logprobs_come_back_bit_for_bit(logprobs: list[float]) -> None:
    back = codec.unpack_logprobs(codec.pack_logprobs(logprobs))
    assert [struct.pack("<f", x) for x in back] == [struct.pack("<f", x) for x in logprobs]


def test_doubles_are_rounded_to_float32() -> None:
    [back] = codec.unpack_logprobs(codec.pack_logprobs([-0.1]))
    assert back == struct.unpack("<f", struct.pack("<f", -0.1))[0] != -0.1
