"""Columns that lie in one another, and verdicts on parts of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.cdc.envelope import FieldPath
from windrow.ingest.ports.decoder import Decoded, Deletes, Refusal


def picked(rows: pa.RecordBatch, path: FieldPath) -> pa.Array:
    """What lies at a path; null where something on the way to it is."""
    name, *rest = path
    column = rows.column(name)
    return pc.struct_field(column, rest) if rest else column


def path_text(path: FieldPath) -> str:
    """A path, for people."""
    return ".".join(("$", *path))


def missing(values: pa.Array, place: str) -> Refusal:
    """Those that are null, and must not be."""
    return Refusal(
        np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)),
        "missing",
        f"Expected a value, got none - at {place}",
    )


def chosen(decoded: Decoded, kept: npt.NDArray[np.bool_]) -> Decoded:
    """The same with some of the rows; the messages of the others are filtered."""
    if kept.all():
        return decoded
    rows = np.flatnonzero(kept)
    return decoded.with_rows(decoded.rows.take(pa.array(rows)), rows)


def beside_items(lists: pa.ListArray, others: pa.ListArray) -> pa.Array:
    """For each item of some lists the item at its place in another list beside; null
    where that is null.

    Both have the same length.
    """
    parents = pc.list_parent_indices(lists).to_numpy()
    lengths = np.where(others.is_valid(), pc.fill_null(pc.list_value_length(others), 0), 0)
    begins = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    within = np.arange(len(parents)) - np.repeat(
        np.concatenate([[0], np.cumsum(counts)])[:-1], counts
    )
    there = lengths[parents] > 0
    return others.flatten().take(
        pa.array(np.where(there, begins[parents] + within, 0), mask=~there)
    )


def together(schema: pa.Schema, parts: Sequence[Decoded], key: Sequence[str] | None) -> Decoded:
    """One verdict of several, no two of which have a message in common.

    Parts with rows have the columns of `schema`.

    `key`: the columns of what is deleted; None, if nothing can be.
    """
    with_rows = [part for part in parts if part.rows.num_rows]
    rows = [pa.RecordBatch.from_arrays(part.rows.columns, schema=schema) for part in with_rows]
    none = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    order, row_index = _in_order([part.row_index for part in with_rows])
    dead_order, dead_index = _in_order([part.dead_index for part in parts])
    stages, reasons, details = (
        pa.concat_arrays([getattr(part, name) for part in parts]).take(dead_order)
        for name in ("dead_stage", "dead_reason", "dead_detail")
    )
    return Decoded(
        pa.concat_batches([*rows, none]).take(order),
        row_index,
        dead_index,
        stages,
        reasons,
        details,
        sum(part.dropped for part in parts),
        sum(part.filtered for part in parts),
        (
            None
            if key is None
            else _deletes([part.deletes for part in parts if part.deletes is not None], schema, key)
        ),
        _unavailable(with_rows, order),
        np.sort(np.concatenate([part.cut for part in parts])),
    )


def _unavailable(parts: Sequence[Decoded], order: pa.Int64Array) -> pa.ListArray | None:
    if all(part.unavailable is None for part in parts):
        return None
    kind = pa.list_(pa.string())
    each = [
        pa.array([[]] * part.rows.num_rows, kind) if part.unavailable is None else part.unavailable
        for part in parts
    ]
    return pa.concat_arrays(each).take(order)


def _deletes(parts: Sequence[Deletes], schema: pa.Schema, key: Sequence[str]) -> Deletes:
    none = [pa.array([], schema.field(name).type) for name in key]
    order, index = _in_order([part.index for part in parts])
    keys = [
        pa.concat_arrays([*(part.keys.column(name) for part in parts), n]).take(order)
        for name, n in zip(key, none, strict=True)
    ]
    return Deletes(pa.RecordBatch.from_arrays(keys, list(key)), index)


def _in_order(parts: Sequence[pa.Int64Array]) -> tuple[pa.Int64Array, pa.Int64Array]:
    """How to take what several indices say, so that their messages ascend, and these."""
    index = np.concatenate([np.zeros(0, np.int64), *(part.to_numpy() for part in parts)])
    order = np.argsort(index, kind="stable")
    return pa.array(order), pa.array(index[order])
