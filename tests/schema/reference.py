"""A second implementation of the checksum, one value at a time.

It is slow, and was written from the description in `ingest.schema.checksum` only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

G, A, B, L, H = (
    0x9E3779B97F4A7C15,
    0xBF58476D1CE4E5B9,
    0x94D049BB133111EB,
    0xD6E8FEB86659FD93,
    0xA0761D6478BD642F,
)
ALL = 2**64 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stir(x: int) -> int:
    x = x * A & ALL
    return (x ^ x >> 32) * B & ALL


def mix(x: int) -> int:
    x &= ALL
    x = (x ^ x >> 30) * A & ALL
    x = (x ^ x >> 27) * B & ALL
    return x ^ x >> 31


def of_bytes(value: bytes) -> int:
    words = [int.from_bytes(value[i : i + 8], "little") for i in range(0, len(value), 8)]
    return (L * len(value) + sum(stir(w + (i + 1) * G & ALL) for i, w in enumerate(words))) & ALL


def key(name: str) -> int:
    return mix(of_bytes(name.encode()) + G)


def cell(name: str, kind: pa.DataType, value: Any) -> int:
    return 0 if value is None else stir(hash_of(kind, value) + key(name) & ALL)


def hash_of(kind: pa.DataType, value: Any) -> int:
    """Returns the hash of a Python value.

    A map is a list of pairs, and a decimal is a `Decimal`.
    """
    if pa.types.is_struct(kind):
        return sum(cell(f.name, f.type, value[f.name]) for f in kind) & ALL
    if pa.types.is_map(kind):
        entries = [
            mix(cell("key", kind.key_type, k) + cell("value", kind.item_type, v)) for k, v in value
        ]
        return (L * len(value) + sum(entries)) & ALL
    if isinstance(value, list):
        element = kind.value_type
        added = [
            0 if v is None else stir(hash_of(element, v) + (i + 1) * G & ALL)
            for i, v in enumerate(value)
        ]
        return (L * len(value) + sum(added)) & ALL
    return _plain(kind, value)


def _plain(kind: pa.DataType, value: Any) -> int:
    if isinstance(value, str):
        return of_bytes(value.encode())
    if isinstance(value, bytes):
        return of_bytes(value)
    if isinstance(value, float):
        return (
            0x7FF8000000000000
            if math.isnan(value)
            else int.from_bytes(struct.pack("<d", value), "little")
        )
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        unscaled = int("".join(map(str, digits))) * 10 ** (exponent + kind.scale) * (
            -1 if sign else 1
        ) & (2**128 - 1)
        low, high = unscaled & ALL, unscaled >> 64
        return (low + H * (high - (ALL if low >> 63 else 0))) & ALL
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) & ALL
    if isinstance(value, date):
        return (value - EPOCH.date()).days & ALL
    return int(value) & ALL


def checksum(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> int:
    """Returns the checksum of rows of Python values."""
    return sum(mix(sum(cell(f.name, f.type, row[f.name]) for f in schema)) for row in rows) & ALL
