"""Bytes in the database: JSON values, token ids, logprobs, and their compression.

JSON is written and read by orjson. Three things that are legal JSON are beyond it: integers past 64 bits
(read as floats, silently), lone surrogates (``"\\ud800"``, which harnesses send when they cut a string in
half), and nesting deeper than its limit. For such a value, and only then, the standard library does the
work; the text in the database is plain JSON either way, and a value read back equals the one written, type
for type.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import threading
from array import array
from collections.abc import Sequence
from typing import Any, NoReturn

import orjson
import zstandard

_LEVEL = 3


def dumps(value: Any) -> bytes:
    """JSON text of `value`, compact UTF-8, keys in their order.

    Raises ValueError for NaN and infinities, TypeError for keys that are not strings and for foreign types.
    """
    try:
        data = orjson.dumps(value)
    except TypeError:
        _check(value)
        return _dumps_slow(value)
    if b"null" in data:  # orjson writes NaN and infinities as null
        _check(value)
    return data


def loads(data: bytes | str) -> Any:
    """The value of a JSON text (UTF-8). Use it for request bodies too: what it reads, `dumps` can store.

    Raises ValueError (most often JSONDecodeError) for what is not JSON, for NaN, for numbers past a double.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    try:
        value = orjson.loads(raw)
        if not _has_long_number(value):
            return value
    except orjson.JSONDecodeError:
        pass  # not JSON, or JSON that orjson does not take: the standard library decides
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error


def digest(data: bytes) -> str:
    """sha256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class _Contexts(threading.local):
    """zstd contexts are not thread-safe, and dear to make for every message."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compress(data: bytes) -> bytes:
    """One zstd frame that states its content size."""
    return _contexts.compressor.compress(data)


def decompress(data: bytes) -> bytes:
    """The content of one zstd frame. Raises zstandard.ZstdError when it is damaged."""
    return _contexts.decompressor.decompress(data)


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids -> zstd of little-endian int32. Raises ValueError for a negative or oversized id."""
    if ids and not 0 <= min(ids) <= max(ids) < 2**31:
        raise ValueError(f"token ids must lie in [0, 2**31), got {min(ids)} .. {max(ids)}")
    return _pack(array("i", ids))


def unpack_ids(data: bytes) -> list[int]:
    """Inverse of `pack_ids`."""
    return _unpack("i", data).tolist()


def pack_logprobs(logprobs: Sequence[float]) -> bytes:
    """Natural-log probabilities -> zstd of little-endian float32 (rounded to it, if they were doubles)."""
    return _pack(array("f", logprobs))


def unpack_logprobs(data: bytes) -> list[float]:
    """Inverse of `pack_logprobs`: Python floats, each exactly a float32."""
    return _unpack("f", data).tolist()


def _pack(values: array[Any]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return compress(values.tobytes())


def _unpack(code: str, data: bytes) -> array[Any]:
    values: array[Any] = array(code)
    values.frombytes(decompress(data))
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _dumps_slow(value: Any) -> bytes:
    try:
        # ASCII, so that a lone surrogate stays the escape it was sent as.
        return json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    except RecursionError as error:
        raise ValueError("value nested too deeply for JSON") from error


def _check(value: Any) -> None:
    """What neither orjson (null) nor json (str(key)) would keep exact. Iterative: bodies may nest deep."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"{item} is not JSON")
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise TypeError(f"a JSON object's keys are strings, not {key!r}")
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)


def _has_long_number(value: Any) -> bool:
    """Whether a float may be an integer past 64 bits, as orjson reads them."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and abs(item) >= 2.0**63:
            return True
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"number {text[:40]} is beyond a double")
    return number
