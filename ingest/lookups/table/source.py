"""A version of a table, held in memory by each worker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest import client_cache
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.ports.lookup import MOST_BYTES, Answers, Ask
from windrow.ingest.schema.dtypes import TIMESTAMP, UnsupportedTypeError


class Snapshots(Protocol):
    """A table with its versions. Picklable.

    `identity`: its kind and place. `read` raises RefusedError if the version or a file of it
    is gone; all raise SpecError if there is no table, and UnreachableError.
    """

    @property
    def identity(self) -> str: ...

    def newest(self) -> str: ...

    def schema(self) -> pa.Schema: ...

    def read(self, version: str, columns: list[str]) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True)
class TableSource:
    """A table as the source of a lookup."""

    snapshots: Snapshots

    @property
    def identity(self) -> str:
        return self.snapshots.identity

    @property
    def repeats(self) -> bool:
        return True

    def version(self) -> str:
        return self.snapshots.newest()

    def held(self, version: str, _tasks: int) -> AbstractContextManager[str]:
        return nullcontext(version)

    def schema(self) -> pa.Schema:
        return pa.schema(list(_storable(self.snapshots.schema())))

    def open(self, version: str, columns: pa.Schema) -> Ask:
        table: Callable[[pa.Schema], _Hashed] = cache(
            lambda keys: self.loaded(version, columns, _hashed, keys)
        )

        def ask(keys: pa.Table) -> Answers:
            return Answers(table(keys.schema).rows_of(keys), 0)

        return ask

    def loaded(
        self, version: str, columns: pa.Schema, make: Callable[..., Any], of: Hashable
    ) -> Any:
        place = (make, of, self.identity, columns)
        kept = client_cache.taken(place)
        if not isinstance(kept, _Loaded) or kept.version != version:
            kept = None  # one at a time
            kept = _Loaded(version, make(self._read(version, columns), columns, of))
        client_cache.keep(place, kept)
        return kept.made

    def _read(self, version: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        size = 0
        for batch in self.snapshots.read(version, columns.names):
            typed = _as(batch, columns, self.identity)
            size += typed.nbytes
            if size > MOST_BYTES:
                raise SpecError(
                    f"The columns {', '.join(columns.names)} of {self.identity} take more than"
                    f" {MOST_BYTES >> 20} MiB of memory",
                    "setup",
                    "Take fewer or smaller columns, or join the table in a spark step.",
                )
            yield typed


@dataclass(frozen=True)
class _Loaded:
    version: str
    made: Any

    def close(self) -> None:
        """Leaves it to whoever still uses it."""


@dataclass(frozen=True)
class _Hashed:
    """Rows, and the hashes of their keys, sorted, with the number of the row of each."""

    rows: pa.Table
    hashes: npt.NDArray[np.uint64]
    at: npt.NDArray[np.int64]

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """The rows with the hash of one of the keys: a join would hash all rows each time."""
        wanted = np.unique(_hashes(keys))
        first = np.searchsorted(self.hashes, wanted)
        count = np.searchsorted(self.hashes, wanted, side="right") - first
        before = np.cumsum(count) - count
        return self.rows.take(self.at[np.repeat(first - before, count) + np.arange(count.sum())])


def _hashed(batches: Iterator[pa.RecordBatch], columns: pa.Schema, keys: pa.Schema) -> _Hashed:
    rows = pa.Table.from_batches(list(batches), columns).combine_chunks()
    hashes = _hashes(rows.select(keys.names).cast(keys))
    at = np.argsort(hashes)
    return _Hashed(rows, hashes[at], at)


def _hashes(keys: pa.Table) -> npt.NDArray[np.uint64]:
    return cast("pl.DataFrame", pl.from_arrow(keys)).hash_rows().to_numpy()


def _storable(schema: pa.Schema) -> Iterator[pa.Field]:
    for field in schema:
        try:
            yield pa.field(field.name, _stored(field.type))
        except UnsupportedTypeError:
            continue


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type that a windrow table has for one of another table.

    Raises:
        UnsupportedTypeError: it has none.
    """
    of = pa.types
    if of.is_dictionary(kind):
        return _stored(kind.value_type)
    if of.is_timestamp(kind) and kind.tz is not None:
        return TIMESTAMP
    if of.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if of.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(field.name, _stored(field.type)) for field in kind])
    if of.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        return pa.list_(_stored(kind.value_type))
    if of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind):
        return pa.string()
    if of.is_binary(kind) or of.is_large_binary(kind) or of.is_fixed_size_binary(kind):
        return pa.binary()
    if kind in _SAME:
        return kind
    raise UnsupportedTypeError(str(kind))


_SAME = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.date32()),
)


def _as(batch: pa.RecordBatch, columns: pa.Schema, source: str) -> pa.RecordBatch:
    """The batch with the types of `columns`.

    Raises:
        RefusedError: a column has another type, and a cast would change its values.
    """
    arrays = []
    for field in columns:
        try:
            arrays.append(_cast(batch[field.name], field.type))
        except (UnsupportedTypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise RefusedError(
                f"{source} has a value in {field.name} that is no {field.type}",
                "setup",
                "A column needs the type that it has in the newest version, or in the first file.",
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if not _holds(kind, values.type):
        raise UnsupportedTypeError(str(values.type))
    return pc.cast(values, kind)


def _holds(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a cast of another type to `kind` keeps each value and its checksum, or fails.

    Arrow also makes 7 of the text "007", true of 5, and 0.00 of the float 1e-9.
    """
    of = pa.types
    if of.is_null(other) or (of.is_integer(kind) and of.is_integer(other)):
        return True
    if of.is_nested(kind) and of.is_nested(other) and kind.num_fields == other.num_fields:
        pairs = [(kind.field(i), other.field(i)) for i in range(kind.num_fields)]
        named = of.is_struct(kind) and any(mine.name != its.name for mine, its in pairs)
        alike = of.is_struct(kind) == of.is_struct(other) and of.is_map(kind) == of.is_map(other)
        return alike and not named and all(_holds(mine.type, its.type) for mine, its in pairs)
    stored = _stored(other)
    return bool(
        stored == kind
        or (of.is_decimal(kind) and of.is_decimal(stored) and kind.scale == stored.scale)
        or (kind == pa.float64() and stored == pa.float32())
    )
