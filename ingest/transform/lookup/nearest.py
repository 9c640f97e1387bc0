"""Vector search as a transform: the nearest rows of a table for the vector of each row.

The search is exact. Scores are the same bits each time, in any batch and on any machine. The
product of two matrices isn't: the order of its sums depends on the sizes, on threads and on
the processor. So the product only chooses candidates, with room for all rounding errors. The
score of each candidate is then summed from the first number to the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.lookup import LookedUp
from windrow.ingest.ports.decoder import Decoded, Refusal
from windrow.ingest.ports.lookup import MOST_BYTES, SearchedSource
from windrow.ingest.ports.transform import Apply, ColumnSource
from windrow.ingest.schema.checksum import checksum, checksum_text
from windrow.ingest.transform.lookup.step import Lookup, LookupStep

_Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Nearest(Lookup):
    """A transform that adds the nearest rows of a source as a list of structs.

    `key` has one pair: the rows' column and the source's column with vectors. The structs
    have the columns of `take`, and `score`.

    Attributes:
        into: the name of the new column.
        top_k: the number of nearest rows.
        metric: how two vectors are compared.
    """

    into: str
    top_k: int
    metric: Literal["cosine", "l2", "dot"]

    @property
    def reads(self) -> Mapping[str, frozenset[ColumnSource]]:
        return {self.into: frozenset[ColumnSource]().union(*super().reads.values())}

    def added(self, source: pa.Schema) -> dict[str, pa.DataType]:
        fields = [*super().added(source).items(), ("score", pa.float64())]
        return {self.into: pa.list_(pa.struct(fields))}

    def comparable(self, row_type: pa.DataType, source_type: pa.DataType) -> bool:
        return all(
            pa.types.is_list(kind) and pa.types.is_floating(kind.value_type)
            for kind in (row_type, source_type)
        )

    def open(self) -> Apply:
        return _Search(self)


class _Search(LookupStep):
    """A vector search in a worker. It compares each row's vector with all vectors of a table."""

    matched_by = "vector"

    @cached_property
    def _table(self) -> _Table:
        lookup = cast("Nearest", self._lookup)
        source, types = (
            cast("SearchedSource", lookup.source),
            lookup.types or lookup.requested_schema(),
        )
        recipe = replace(lookup, pin=None)
        return cast("_Table", source.load(lookup.version(), types, _Table, recipe))

    def _answers(
        self, decoded: Decoded, _messages: pa.RecordBatch
    ) -> tuple[list[pa.Array], npt.NDArray[np.bool_], LookedUp, list[Refusal]]:
        lookup, table, began = cast("Nearest", self._lookup), self._table, datetime.now(UTC)
        column, source_rows = decoded.rows[self._columns[0]], table.rows
        rows, matrix, lengths = _vectors(column, table.dimensions, lookup.metric)
        top_k = min(lookup.top_k, len(source_rows))
        if len(rows) * top_k * (64 + source_rows.nbytes / max(1, len(source_rows))) > MOST_BYTES:
            raise self._too_large(len(column))
        matches = [
            (np.zeros(0, np.int64), np.zeros(0)),
            *(
                table.nearest(matrix[part].astype(np.float64), lengths[part], top_k)
                for part in _slices(len(rows) * (top_k > 0), max(len(source_rows), matrix.shape[1]))
            ),
        ]
        vectors, scores = map(np.concatenate, zip(*matches, strict=True))
        arrays = [
            self._take(source_rows[source_column], pa.array(vectors))
            for source_column, _ in lookup.take
        ]
        kind = lookup.added(source_rows.schema)[lookup.into]
        structs = pa.StructArray.from_arrays([*arrays, pa.array(scores)], fields=[*kind.value_type])
        hit = np.isin(np.arange(len(column)), rows) & (top_k > 0)
        ends = pa.array(np.append(0, np.cumsum(hit * top_k)), pa.int32())
        answers = pa.ListArray.from_arrays(ends, structs, type=kind, mask=pa.array(~hit))
        pairs = pa.RecordBatch.from_arrays([column, answers], ["key", lookup.into])
        answered = checksum_text(checksum(pairs.filter(pa.array(hit))))
        counts = int(hit.sum()), int(hit.sum()), 0, 0
        counted = LookedUp(lookup.name, *counts, began, datetime.now(UTC), answered)
        unfit = np.asarray(column.is_valid()) & ~hit & (top_k > 0)
        detail = (
            f"Expected {table.dimensions} finite numbers"
            f"{', not all zero' if lookup.metric == 'cosine' else ''} - in {lookup.setting}"
        )
        refusal = Refusal(np.flatnonzero(unfit), f"lookup:{lookup.name}:vector", detail)
        return [answers], ~hit & ~unfit, counted, [refusal]


class _Table:
    """The vectors of a version of a table, in a worker. Rows without a vector are left out.

    Attributes:
        rows: the taken columns of the rows that have a vector. If scores are equal, the
            row with the smaller values comes first.
        dimensions: the length of the vectors; None if there are none.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], columns: pa.Schema, lookup: Nearest
    ) -> None:
        [(_, vector)], self._metric, sizes = lookup.key, lookup.metric, set[int]()
        types = pa.schema([columns.field(source_column) for source_column, _ in lookup.take])
        kind = np.dtype(columns.field(vector).type.value_type.to_pandas_dtype())
        # np.empty only reserves address space; a page takes memory once it is written
        numbers, size = np.empty(MOST_BYTES // kind.itemsize, kind), 0
        parts = [(types.empty_table(), np.zeros(0))]
        for batch in batches:
            sizes |= set(pc.list_value_length(batch[vector]).unique().to_pylist()) - {None, 0}
            if len(sizes) > 1:
                raise RefusedError(
                    f"{vector} has vectors of {min(sizes)} and of {max(sizes)} numbers:"
                    f" {lookup.source.identity}",
                    "validate",
                    "Keep vectors of one length in a table.",
                )
            rows, matrix, lengths = _vectors(batch[vector], max(sizes, default=None), self._metric)
            part = pa.table(batch.select(types.names)).take(pa.array(rows))
            parts.append((part, lengths))
            numbers[size : size + matrix.size] = matrix.ravel()
            size += matrix.size
        tables, every_length = zip(*parts, strict=True)
        self.rows = pa.concat_tables(tables).combine_chunks()
        self.dimensions = max(sizes, default=None)
        self._matrix = numbers[:size].reshape(len(self.rows), self.dimensions or 0)
        self._lengths = np.concatenate(every_length)
        ranks = pl.DataFrame(self.rows).select(pl.struct(pl.all()).rank("ordinal"))
        self._ranks = ranks.to_series().to_numpy()

    def nearest(self, queries: _Array, lengths: _Array, top_k: int) -> tuple[_Array, _Array]:
        """Returns the `top_k` nearest vectors of each query, nearest first, and their scores.

        `near` is the approximate nearness from the product of the matrices: greater is nearer.
        Its error is less than half of `room`, because the error of a sum of n products is at
        most n half epsilons times the product of both lengths, in any order (Higham, Accuracy
        and Stability of Numerical Algorithms, 3.1).

        Args:
            queries: a matrix with one query per row.
            lengths: the length of each query.
            top_k: at most the number of vectors in the table.

        Returns:
            The row numbers of the vectors in the table, and the scores, query by query.
        """
        metric, kind, table_lengths = self._metric, self._matrix.dtype, self._lengths
        near, scale = queries.astype(kind) @ self._matrix.T, lengths * table_lengths.max()
        if metric == "cosine":
            near, scale = near / table_lengths.astype(kind), lengths
        elif metric == "l2":
            near -= (np.square(table_lengths) / 2).astype(kind)
            scale = np.square(lengths + table_lengths.max())
        room = 4 * (queries.shape[1] + 32) * float(np.finfo(kind).eps) * scale + 2.0**-120
        x, y = np.nonzero(near >= (np.partition(near, -top_k)[:, -top_k] - room)[:, None])
        scores = np.concatenate(
            [
                _sums(np.square(q - v) if metric == "l2" else q * v)
                for part in _slices(len(x), queries.shape[1])
                for q, v in [(queries[x[part]], self._matrix[y[part]].astype(np.float64))]
            ]
        )
        if metric == "cosine":
            scores = (scores / (lengths[x] * table_lengths[y])).clip(-1, 1)
        elif metric == "l2":
            scores = np.sqrt(scores)
        order = np.lexsort((self._ranks[y], scores if metric == "l2" else -scores, x))
        top_order = order[np.arange(len(x)) - np.searchsorted(x, x) < top_k]
        return y[top_order], scores[top_order]


def _vectors(lists: pa.ListArray, length: int | None, metric: str) -> tuple[_Array, _Array, _Array]:
    """Selects the vectors whose score with any other vector is a finite number.

    Their numbers are finite, and with "cosine" not all are zero. Their Euclidean length has
    bounds, so that products of `float32` neither overflow nor become zero.

    Args:
        lists: the vectors; null is none.
        length: how many numbers a vector must have.
        metric: how two vectors are compared.

    Returns:
        The indices of these vectors in `lists`, the vectors as a matrix, and their Euclidean
        lengths.
    """
    right = pc.equal(pc.list_value_length(lists), pa.scalar(length, pa.int32()))
    rows = np.flatnonzero(right.fill_null(False).to_numpy(zero_copy_only=False))
    values = (lists if len(rows) == len(lists) else lists.take(pa.array(rows))).flatten()
    matrix = values.to_numpy(zero_copy_only=False).reshape(len(rows), length or 0)
    doubles = (matrix[part].astype(np.float64) for part in _slices(*matrix.shape))
    with np.errstate(over="ignore"):  # an infinite sum is filtered out below
        squares = np.concatenate([np.zeros(0), *(_sums(np.square(block)) for block in doubles)])
    # a comparison with NaN is false, so NaN is filtered out, too
    fit = (squares >= (2.0**-120 if metric == "cosine" else 0)) & (squares <= 2.0**120)
    if not fit.all():
        rows, matrix, squares = rows[fit], matrix[fit], squares[fit]
    return rows, matrix, np.sqrt(squares)


def _sums(terms: _Array) -> _Array:
    """Returns the sum of each row, added up from its first number to its last."""
    return np.cumsum(terms, axis=1)[:, -1]


def _slices(rows: int, width: int) -> Iterator[slice]:
    """Yields slices of a matrix's rows, each of at most 16 MiB of doubles."""
    size = max(1, (1 << 21) // max(1, width))
    return (slice(start, start + size) for start in range(0, rows, size))
