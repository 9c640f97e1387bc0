"""The values of partition fields, as Iceberg defines its transforms, and their texts.

A value is a whole number, a text, a boolean or null. That of a time is the number of years,
months, days or hours since 1970, and that of a date its days since 1970. So it exists for each
instant, also before the year 1 and after 9999.

A text is for Delta and for folders. Their readers know the calendar from 0001-01-01 to
9999-12-31, a folder's name has at most 255 bytes, and an empty text is null in Delta's log and an
error of Spark in a folder's name. A value without such a text has the partition of null; its rows
keep the value in their own column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.schema.partition_fields import PartitionField, PartitionValues

_LONGEST_TEXT = 150
"""The most bytes of a text in a folder's name, with the escapes."""

_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_DAY_1 = date(1970, 1, 1).toordinal()
_HOUR = 3_600_000_000
"""Microseconds of an hour."""


def divide_by_partition(
    fields: Sequence[PartitionField], batch: pa.RecordBatch, *, as_texts: bool = False
) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """Yields the rows of each partition of a batch, in their order, with the partition's values.

    Args:
        fields: the partition fields.
        batch: the rows.
        as_texts: whether the values are the texts of Delta and folders.
    """
    encoded = [_encode(f, batch.column(f.column), as_texts=as_texts) for f in fields]
    codes = np.zeros(batch.num_rows, np.int64)
    for column in encoded:
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else ():
        partition = tuple(column[int(rows[0])].as_py() for column in encoded)
        yield partition, batch if len(rows) == len(order) else batch.take(pa.array(rows))


def _encode(field: PartitionField, column: pa.Array, *, as_texts: bool) -> pa.DictionaryArray:
    """Returns the distinct values, or texts, of a column, and which of them each row has."""
    encoded = _values(field, column).dictionary_encode("encode")
    if not as_texts:
        return encoded
    texts = [_partition_text(field, column.type, value) for value in encoded.dictionary.to_pylist()]
    distinct = pa.array(texts, pa.string()).dictionary_encode("encode")
    return pa.DictionaryArray.from_arrays(
        distinct.indices.take(encoded.indices), distinct.dictionary
    )


def _values(field: PartitionField, column: pa.Array) -> pa.Array:
    """Returns the value of each row of a column."""
    if field.transform == "bucket":
        hashes = (_murmur3(column) & np.uint32(0x7FFFFFFF)) % np.uint32(field.buckets)
        return pa.array(hashes.astype(np.int32), mask=_null_mask(column))
    if field.transform == "identity":
        return column.cast(pa.int32()) if pa.types.is_date(column.type) else column
    is_date = pa.types.is_date(column.type)
    numbers = column.cast(pa.int32() if is_date else pa.int64()).fill_null(0).to_numpy()
    if field.transform == "hour":  # Iceberg's have 32 bits, and its readers take no more
        ordinals = np.clip(numbers // _HOUR, -(1 << 31), (1 << 31) - 1)
    else:  # numpy rounds the least microseconds wrong, so it is given days
        days = (numbers if is_date else numbers // (24 * _HOUR)).astype("datetime64[D]")
        ordinals = days.astype(f"datetime64[{_UNITS[field.transform]}]").astype(np.int64)
    return pa.array(ordinals, mask=_null_mask(column))


def _null_mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)


# --------------------------------------------------------------------------------------------------


def _partition_text(
    field: PartitionField, kind: pa.DataType, value: int | str | bool | None
) -> str | None:
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    if isinstance(value, str):
        return value if 0 < len(quote(value, safe="")) <= _LONGEST_TEXT else None
    unit = "D" if pa.types.is_date(kind) and field.transform == "identity" else None
    unit = unit or _UNITS.get(field.transform)
    if unit is None:
        return str(value)
    days = np.array([value], f"datetime64[{unit}]").astype("datetime64[D]").astype(np.int64)
    ordinal = int(days[0]) + _DAY_1
    if not 1 <= ordinal <= date.max.toordinal():
        return None
    day = date.fromordinal(ordinal).isoformat()
    texts = {"Y": day[:4].lstrip("0"), "M": day[:7], "h": f"{day}-{value % 24:02}"}
    return texts.get(unit, day)


# --------------------------------------------------------------------------------------------------


def _murmur3(column: pa.Array) -> npt.NDArray[np.uint32]:
    """Returns the 32-bit Murmur3 hash of each row, as Iceberg's buckets need it.

    A number, a date or a timestamp is hashed as 8 bytes. The hash of a null has no meaning.
    """
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        filled = column.cast(pa.binary()).fill_null(b"")
        offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset :][: len(filled) + 1]
        content = np.frombuffer(filled.buffers()[2] or b"", np.uint8)
        starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    else:
        days = pa.types.is_date(column.type)
        numbers = (column.cast(pa.int32()) if days else column).cast(pa.int64()).fill_null(0)
        content = np.frombuffer(numbers.to_numpy().astype("<i8").tobytes(), np.uint8)
        starts, lengths = np.arange(len(numbers)) * 8, np.full(len(numbers), 8)
    words, hashes = lengths // 4, np.zeros(len(starts), np.uint32)
    rows = np.flatnonzero(words)
    word = 0
    while len(rows):
        first = starts[rows] + 4 * word
        mixed = hashes[rows] ^ _mix(_read_words(content, first, np.full(len(rows), 4)))
        hashes[rows] = _rotate_left(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        word += 1
        rows = rows[words[rows] > word]
    last_words = _read_words(content, starts + 4 * words, lengths % 4)
    hashes ^= _mix(last_words) ^ lengths.astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
    return hashes


def _read_words(
    content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Returns up to four bytes from each start as a number, little-endian."""
    words = np.zeros(len(starts), np.uint32)
    for byte in range(4):
        rows = sizes > byte
        words[rows] |= content[starts[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    return words


def _mix(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return _rotate_left(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotate_left(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
