"""A table as a lookup source: each worker holds a version of it in memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
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

    `read` and `replaced_at` raise RefusedError if the version or a file of it is gone. Each method
    raises SpecError if there is no table, and UnreachableError if the table can't be reached.

    Attributes:
        identity: the table's kind and place.
    """

    @property
    def identity(self) -> str: ...

    def newest(self) -> str: ...

    def schema(self) -> pa.Schema: ...

    def read(self, version: str, columns: list[str]) -> Iterator[pa.RecordBatch]: ...

    def replaced_at(self, version: str) -> datetime | None: ...


@dataclass(frozen=True)
class TableSource:
    """A table as the source of a lookup."""

    snapshots: Snapshots

    @property
    def identity(self) -> str:
        return self.snapshots.identity

    @property
    def is_repeatable(self) -> bool:
        return True

    def version(self) -> str:
        return self.snapshots.newest()

    def replaced_at(self, version: str) -> datetime | None:
        return self.snapshots.replaced_at(version)

    def hold(self, version: str, _tasks: int) -> AbstractContextManager[str]:
        return nullcontext(version)

    def schema(self) -> pa.Schema:
        return pa.schema(list(_storable(self.snapshots.schema())))

    def open(self, version: str, columns: pa.Schema) -> Ask:
        table: Callable[[pa.Schema], _Hashed] = cache(
            lambda keys: self.load(version, columns, _hash_rows, keys)
        )

        def ask(keys: pa.Table) -> Answers:
            return Answers(table(keys.schema).rows_of(keys), 0)

        return ask

    def load(
        self, version: str, columns: pa.Schema, build: Callable[..., Any], recipe: Hashable
    ) -> Any:
        cache_key = (build, recipe, self.identity, columns)
        cached = client_cache.take_client(cache_key)
        if not isinstance(cached, _Loaded) or cached.version != version:
            cached = None  # frees the other version first: a worker never holds two
            cached = _Loaded(version, build(self._read(version, columns), columns, recipe))
        client_cache.keep(cache_key, cached)
        return cached.search_index

    def _read(self, version: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        size = 0
        for batch in self.snapshots.read(version, columns.names):
            typed = _cast_batch(batch, columns, self.identity)
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
    search_index: Any

    def close(self) -> None:
        """Does nothing: a function that asks the table may still use it."""


@dataclass(frozen=True)
class _Hashed:
    """Rows, and an index of the hashes of their keys.

    Attributes:
        rows: the rows.
        hashes: the hashes of the rows' keys, sorted.
        row_numbers: the row number of each hash.
    """

    rows: pa.Table
    hashes: npt.NDArray[np.uint64]
    row_numbers: npt.NDArray[np.int64]

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """Returns the rows whose key has the hash of one of the keys.

        A join isn't used: it would hash all rows at each call.
        """
        key_hashes = np.unique(_hashes(keys))
        first = np.searchsorted(self.hashes, key_hashes)
        count = np.searchsorted(self.hashes, key_hashes, side="right") - first
        output_starts = np.cumsum(count) - count
        return self.rows.take(
            self.row_numbers[np.repeat(first - output_starts, count) + np.arange(count.sum())]
        )


def _hash_rows(batches: Iterator[pa.RecordBatch], columns: pa.Schema, keys: pa.Schema) -> _Hashed:
    rows = pa.Table.from_batches(list(batches), columns).combine_chunks()
    hashes = _hashes(rows.select(keys.names).cast(keys))
    order = np.argsort(hashes)
    return _Hashed(rows, hashes[order], order)


def _hashes(keys: pa.Table) -> npt.NDArray[np.uint64]:
    return cast("pl.DataFrame", pl.from_arrow(keys)).hash_rows().to_numpy()


def _storable(schema: pa.Schema) -> Iterator[pa.Field]:
    for field in schema:
        try:
            yield pa.field(field.name, _table_type(field.type))
        except UnsupportedTypeError:
            continue


def _table_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a windrow column for a type of another table.

    Raises:
        UnsupportedTypeError: no type fits.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return _table_type(kind.value_type)
    if types.is_timestamp(kind) and kind.tz is not None:
        return TIMESTAMP
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(field.name, _table_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_table_type(kind.key_type), _table_type(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_table_type(kind.value_type))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if kind in _SAME:
        return kind
    raise UnsupportedTypeError(str(kind))


_SAME = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.date32()),
)


def _cast_batch(batch: pa.RecordBatch, columns: pa.Schema, source: str) -> pa.RecordBatch:
    """Returns the batch with the types of `columns`.

    Args:
        batch: rows of a table.
        columns: the wanted columns.
        source: the table's identity, for messages.

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


def _holds(kind: pa.DataType, source_kind: pa.DataType) -> bool:
    """Returns whether a cast from `source_kind` to `kind` keeps each value, or fails.

    Arrow's cast also turns the text "007" into 7, 5 into true, and the float 1e-9 into 0.00.
    Such casts would change a row's checksum.
    """
    types = pa.types
    if types.is_null(source_kind) or (types.is_integer(kind) and types.is_integer(source_kind)):
        return True
    if (
        types.is_nested(kind)
        and types.is_nested(source_kind)
        and kind.num_fields == source_kind.num_fields
    ):
        pairs = [(kind.field(i), source_kind.field(i)) for i in range(kind.num_fields)]
        named = types.is_struct(kind) and any(
            field.name != source_field.name for field, source_field in pairs
        )
        alike = types.is_struct(kind) == types.is_struct(source_kind) and types.is_map(
            kind
        ) == types.is_map(source_kind)
        return (
            alike
            and not named
            and all(_holds(field.type, source_field.type) for field, source_field in pairs)
        )
    stored = _table_type(source_kind)
    return bool(
        stored == kind
        or (types.is_decimal(kind) and types.is_decimal(stored) and kind.scale == stored.scale)
        or (kind == pa.float64() and stored == pa.float32())
    )
