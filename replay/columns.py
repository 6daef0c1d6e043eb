"""Column types: what a Python value looks like in the database, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, Dialect, Integer, LargeBinary, TypeDecorator

from replay import codec

BigId = BigInteger().with_variant(Integer, "sqlite")
"""Row ids. SQLite counts rows by itself only for a column declared INTEGER."""


class TokenIds(TypeDecorator[Sequence[int]]):
    """int32 token ids, zstd-compressed."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Sequence[int] | None, dialect: Dialect) -> bytes | None:
        """To the database."""
        return None if value is None else codec.pack_ids(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> list[int] | None:
        """From the database."""
        return None if value is None else codec.unpack_ids(value)


class Logprobs(TypeDecorator[Sequence[float]]):
    """float32 logprobs (nats), zstd-compressed."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Sequence[float] | None, dialect: Dialect) -> bytes | None:
        """To the database."""
        return None if value is None else codec.pack_logprobs(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> list[float] | None:
        """From the database."""
        return None if value is None else codec.unpack_logprobs(value)


class Digest(TypeDecorator[str]):
    """A sha256: hexadecimal in Python, 32 bytes in the database."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """To the database."""
        return None if value is None else bytes.fromhex(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """From the database."""
        return None if value is None else value.hex()
