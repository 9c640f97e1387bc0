"""A checksum over rows that doesn't depend on their order.

Receipts keep it for ever, so this text defines every bit of it. It detects accidents and simple
tampering. It has no secret, so it doesn't detect tampering by a computed collision. All numbers
are unsigned, have 64 bits, and wrap around.

    G = 0x9E3779B97F4A7C15   A = 0xBF58476D1CE4E5B9   B = 0x94D049BB133111EB
    L = 0xD6E8FEB86659FD93   H = 0xA0761D6478BD642F

    stir(x)         x *= A;  x ^= x >> 32;  x *= B
    mix(x)          x ^= x >> 30;  x *= A;  x ^= x >> 27;  x *= B;  x ^= x >> 31
                    (the finalizer of splitmix64)
    key(name)       mix(hash of the name's UTF-8 bytes + G)
    cell(name, v)   0 if v is null, else stir(hash(v) + key(name))
    checksum        the sum over rows of mix(the sum over columns of
                    cell(column's name, value))

    hash of ...
    an integer, a boolean, a date (days), a timestamp (microseconds)
                    itself, extended with its sign
    a float         its 64 bits as a double; every NaN is 0x7FF8000000000000,
                    -0.0 is not 0.0
    a decimal       of the unscaled integer's 128 bits: low half + H * (high half -
                    the sign of the low half extended)
    text, bytes     L * length in bytes + the sum over their 8-byte words,
                    little-endian, the last word filled up with zeros, of
                    stir(word + (i + 1) * G), i = 0, 1, ...
    a list          L * length + the sum over its elements, i = 0, 1, ..., of 0 if
                    null, else stir(hash(element) + (i + 1) * G)
    a map           L * length + the sum over its entries of mix(cell("key", key) +
                    cell("value", value)); their order has no effect
    a struct        the sum over its fields of cell(field's name, value)

These properties follow:

- A null adds nothing, so a nullable column that is added later doesn't change earlier checksums.
- Null, empty and a struct of nulls have different checksums.
- The order of rows, columns and batches has no effect.
- The storage of values by Arrow or Parquet (dictionaries, widths, slices) has no effect.
- `stir` and `mix` are bijective. So if a single number changes, for instance an offset, the
  checksum certainly changes. Any other change isn't detected once in 2**64 times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.native.calling import Compiled

Hashes = npt.NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15
_ALL = (1 << 64) - 1
_PASSES = Compiled("windrow.ingest.schema.hashes")
_HIGH, _NAN = np.uint64(0xA0761D6478BD642F), np.uint64(0x7FF8000000000000)


def checksum_text(checksum: int) -> str:
    """Returns a checksum as 16 hexadecimal digits, because JSON numbers are exact to 2**53 only."""
    return f"{checksum & _ALL:016x}"


def checksum(batch: pa.RecordBatch, leave_out: Collection[str] = ()) -> int:
    """Returns the checksum of a batch, over all rows and all columns.

    The checksum of several batches is the sum of their checksums, modulo 2**64.

    Args:
        batch: the batch.
        leave_out: columns that don't count.

    Raises:
        TypeError: a column has a type that no table of windrow holds.
    """
    return sum_hashes(hash_rows(batch, leave_out))


def checksums(batch: pa.RecordBatch, leave_out: Collection[str]) -> tuple[int, int]:
    """Returns the checksums of a batch: without some columns, and with all columns.

    Raises:
        TypeError: a column has a type that no table of windrow holds.
    """
    sums, rest = (
        _sums_of_cells(names, [batch.column(n) for n in names], batch.num_rows)
        for names in (
            [n for n in batch.schema.names if n not in leave_out],
            [n for n in batch.schema.names if n in leave_out],
        )
    )
    return sum_hashes(_mix(sums.copy())), sum_hashes(_mix(sums + rest))


def sum_hashes(hashes: Hashes) -> int:
    """Returns the checksum of rows with these hashes."""
    return int(hashes.sum(dtype=np.uint64))


def hash_rows(batch: pa.RecordBatch, leave_out: Collection[str] = ()) -> Hashes:
    """Returns the hash of each row; the sum of the hashes is the checksum.

    Args:
        batch: the batch.
        leave_out: columns that don't count.

    Raises:
        TypeError: a column has a type that no table of windrow holds.
    """
    names = [n for n in batch.schema.names if n not in leave_out]
    return _mix(_sums_of_cells(names, [batch.column(n) for n in names], batch.num_rows))


# --------------------------------------------------------------------------------------------------


def _mix(hashes: Hashes) -> Hashes:
    """Mixes each hash, in place."""
    _PASSES.mix(hashes)
    return hashes


@lru_cache(maxsize=4096)
def _key(name: str) -> np.uint64:
    return np.uint64(_mix(_hashes(pa.array([name], pa.string())) + np.uint64(GOLDEN))[0])


def _sums_of_cells(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> Hashes:
    """Returns the sum of the cells of each row."""
    sums = np.zeros(rows, np.uint64)
    for name, column in zip(names, columns, strict=True):
        if column.null_count < rows:
            _PASSES.add_cells(sums, _hashes(column), _key(name), _present(column))
    return sums


def _present(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Returns 0 for each null and 1 for any other value; an empty array if there are no nulls."""
    return (
        column.is_valid().cast(pa.uint8()).to_numpy()
        if column.null_count
        else np.empty(0, np.uint8)
    )


def _hashes(column: pa.Array) -> Hashes:
    """Returns the hash of each value; the hash of a null is any number.

    The array may share the column's memory.
    """
    hashed = _HASHED.get(column.type.id)
    if hashed is None:
        raise TypeError(f"no checksum is defined for {column.type}")
    return hashed(column)


def _nulls(column: pa.Array) -> Hashes:
    return np.zeros(len(column), np.uint64)


def _buffer(column: pa.Array, dtype: type[np.generic], width: int = 1) -> npt.NDArray[Any]:
    """Returns the numbers in an array's buffer, `width` of them for each value."""
    size = np.dtype(dtype).itemsize
    return np.frombuffer(
        column.buffers()[1], dtype, len(column) * width, column.offset * width * size
    )


def _integers(column: pa.Array) -> Hashes:
    kind = column.type.to_pandas_dtype()
    wide = np.uint64 if np.issubdtype(kind, np.unsignedinteger) else np.int64
    return _buffer(column, kind).astype(wide, copy=False).view(np.uint64)


def _booleans(column: pa.Array) -> Hashes:
    return _integers(column.cast(pa.uint8()))


def _dates(column: pa.Array) -> Hashes:
    return _integers(column.view(pa.int32()))


def _timestamps(column: pa.Array) -> Hashes:
    kind = column.type
    return _integers(
        (column if kind.unit == "us" else column.cast(pa.timestamp("us", kind.tz))).view(pa.int64())
    )


def _floats(column: pa.Array) -> Hashes:
    numbers = _buffer(column, column.type.to_pandas_dtype()).astype(np.float64, copy=False)
    odd = np.isnan(numbers)
    hashes = numbers.view(np.uint64)
    return np.where(odd, _NAN, hashes) if odd.any() else hashes


def _decimals(column: pa.Array) -> Hashes:
    if not pa.types.is_decimal128(column.type):
        column = column.cast(pa.decimal128(38, column.type.scale))
    halves = _buffer(column, np.uint64, 2).reshape(-1, 2)
    low = halves[:, 0].astype(np.uint64)
    high = halves[:, 1] - np.right_shift(low.view(np.int64), 63).view(np.uint64)
    if high.any():
        low += high * _HIGH
    return low


def _views(column: pa.Array) -> Hashes:
    return _texts(column.cast(pa.large_binary()))


def _dictionaries(column: pa.Array) -> Hashes:
    return _hashes(column.cast(column.type.value_type))


def _structs(column: pa.Array) -> Hashes:
    names = [column.type.field(i).name for i in range(column.type.num_fields)]
    return _sums_of_cells(names, [column.field(i) for i in range(len(names))], len(column))


def _lists(column: pa.Array) -> Hashes:
    lengths = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    elements = column.flatten()
    hashes = np.empty(len(column), np.uint64)
    _PASSES.hash_lists(lengths, _hashes(elements), _present(elements), hashes)
    return hashes


def _maps(column: pa.Array) -> Hashes:
    entries = pa.ListArray.from_arrays(
        column.offsets, pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    )
    lengths = np.diff(column.offsets.to_numpy().astype(np.int64))
    if column.null_count:
        lengths *= _present(column)
        entries = entries.filter(column.is_valid())
    hashes = np.empty(len(column), np.uint64)
    _PASSES.hash_maps(lengths, _structs(entries.flatten()), hashes)
    return hashes


def _texts(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        ends = np.arange(column.offset, column.offset + len(column) + 1) * kind.byte_width
        data = column.buffers()[1]
    else:
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        dtype = np.dtype(np.int64 if wide else np.int32)
        ends = np.frombuffer(
            column.buffers()[1], dtype, len(column) + 1, column.offset * dtype.itemsize
        ).astype(np.int64)
        data = column.buffers()[2]
    hashes = np.empty(len(column), np.uint64)
    _PASSES.hash_texts(np.frombuffer(b"" if data is None else data, np.uint8), ends, hashes)
    return hashes


_SAMPLES: dict[Callable[[pa.Array], Hashes], tuple[pa.DataType, ...]] = {
    _nulls: (pa.null(),),
    _booleans: (pa.bool_(),),
    _integers: (
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
    ),
    _floats: (pa.float16(), pa.float32(), pa.float64()),
    _dates: (pa.date32(),),
    _timestamps: (pa.timestamp("us"),),
    _decimals: (pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)),
    _texts: (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(1)),
    _views: (pa.string_view(), pa.binary_view()),
    _lists: (pa.list_(pa.null()), pa.large_list(pa.null())),
    _maps: (pa.map_(pa.string(), pa.null()),),
    _structs: (pa.struct([]),),
    _dictionaries: (pa.dictionary(pa.int8(), pa.string()),),
}
_HASHED = {kind.id: hashed for hashed, kinds in _SAMPLES.items() for kind in kinds}
