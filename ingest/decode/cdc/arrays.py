"""Columns that lie in one another, and verdicts on parts of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.cdc.envelope import FieldPath
from ingest.ports.decoder import Decoded


def picked(rows: pa.RecordBatch, path: FieldPath) -> pa.Array:
    """What lies at a path; null where something on the way to it is."""
    name, *rest = path
    column = rows.column(name)
    return pc.struct_field(column, rest) if rest else column


def shown(path: FieldPath) -> str:
    """A path, for people."""
    return ".".join(("$", *path))


def chosen(decoded: Decoded, kept: npt.NDArray[np.bool_]) -> Decoded:
    """The same with some of the rows; the messages of the others are filtered."""
    if kept.all():
        return decoded
    rows = np.flatnonzero(kept)
    return decoded.with_rows(decoded.rows.take(pa.array(rows)), rows)


def together(schema: pa.Schema, parts: Sequence[Decoded]) -> Decoded:
    """One verdict of several, no two of which have a message in common. What has other columns than `schema` must have no rows."""
    rows = [pa.RecordBatch.from_arrays(part.rows.columns, schema=schema) for part in parts if part.rows.num_rows]
    index = np.concatenate([part.row_index.to_numpy() for part in parts if part.rows.num_rows] or [np.zeros(0, np.int64)])
    order = None if bool((index[1:] >= index[:-1]).all()) else pa.array(np.argsort(index, kind="stable"))
    all_rows = pa.concat_batches(rows) if rows else pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    dead = pa.array(np.argsort(np.concatenate([part.dead_index.to_numpy() for part in parts]), kind="stable"))
    index_array = pa.array(index, pa.int64())
    return Decoded(
        all_rows if order is None else all_rows.take(order), index_array if order is None else index_array.take(order),
        pa.concat_arrays([part.dead_index for part in parts]).take(dead), pa.concat_arrays([part.dead_stage for part in parts]).take(dead),
        pa.concat_arrays([part.dead_reason for part in parts]).take(dead), pa.concat_arrays([part.dead_detail for part in parts]).take(dead),
        sum(part.dropped for part in parts), sum(part.filtered for part in parts),
    )  # fmt: skip


def numbered(decoded: Decoded, numbers: pa.Int64Array) -> Decoded:
    """The same with other numbers for the messages."""
    return replace(decoded, row_index=numbers.take(decoded.row_index), dead_index=numbers.take(decoded.dead_index))
