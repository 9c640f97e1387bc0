"""Functions on columns that are nested in an envelope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.cdc.envelope import FieldPath
from windrow.ingest.formats.shared.decoded import nothing
from windrow.ingest.ports.decoder import Decoded, Ignored, Refusal
from windrow.ingest.schema.columns import Column, Columns, epoch_of, field_of, zone_of

Leaf = tuple[FieldPath, Column]
"""Column of an envelope, and its path."""


def merge_leaves(first: Sequence[Leaf], second: Sequence[Leaf]) -> list[Leaf] | None:
    """Returns the leaves of both; None if one message can't be decoded to all of them.

    It can't if a path is the beginning of another path, or has columns of two types.
    """
    merged = dict(second)
    for path, column in first:
        if merged.setdefault(path, column).type != column.type:
            return None
    paths = sorted(merged)
    is_nested = any(longer[: len(path)] == path for path, longer in pairwise(paths))
    return None if is_nested else list(merged.items())


def nest_columns(leaves: Sequence[Leaf]) -> Columns:
    """Returns the columns of an envelope that has each leaf at its path.

    No path may be the beginning of another path. The columns have no `row_path`, because
    the leaves may be outside the row.
    """
    fields = _fields([(path, field_of(column)) for path, column in leaves])
    return Columns(
        tuple(
            Column(f.name, f.type, nullable=True, epoch=epoch_of(f), zone=zone_of(f))
            for f in fields
        ),
        row_path=None,
    )


def _fields(leaves: Sequence[tuple[FieldPath, pa.Field]]) -> list[pa.Field]:
    """Returns the fields of one level, each with all fields inside it."""
    below: dict[str, list[tuple[FieldPath, pa.Field]]] = {}
    for (name, *rest), leaf in leaves:
        below.setdefault(name, []).append((tuple(rest), leaf))
    return [
        (
            group[0][1].with_name(name)
            if not group[0][0]
            else pa.field(name, pa.struct(_fields(group)))
        )
        for name, group in below.items()
    ]


def pick(rows: pa.RecordBatch, path: FieldPath) -> pa.Array:
    """Returns the column at a path; null where a struct on the path is null."""
    name, *rest = path
    column = rows.column(name)
    return pc.struct_field(column, rest) if rest else column


def path_text(path: FieldPath) -> str:
    """Returns a path in the form of error messages: `$.source.ts_ms`."""
    return ".".join(("$", *path))


def refuse_nulls(values: pa.Array, path: str) -> Refusal:
    """Refuses rows that are null in a column that isn't nullable."""
    is_null = values.is_null() if values.null_count else pa.array([], pa.bool_())
    return Refusal(
        np.flatnonzero(is_null.to_numpy(zero_copy_only=False)),
        "missing",
        f"Expected a value, got none - at {path}",
    )


def keep_rows(decoded: Decoded, row_mask: npt.NDArray[np.bool_]) -> Decoded:
    """Keeps some of the rows. A message that loses all of its rows counts as filtered."""
    if row_mask.all():
        return decoded
    rows = np.flatnonzero(row_mask)
    return decoded.with_rows(decoded.rows.take(pa.array(rows)), rows)


def select_rows(decoded: Decoded, row_mask: npt.NDArray[np.bool_]) -> Decoded:
    """Returns the verdict on the messages of some rows alone. Each message has one row."""
    rows = decoded.rows if row_mask.all() else decoded.rows.filter(pa.array(row_mask))
    index = decoded.row_index.to_numpy()[row_mask]
    return replace(
        nothing(decoded.rows.schema),
        rows=rows,
        row_index=pa.array(index),
        cut=decoded.cut[np.isin(decoded.cut, index)] if len(decoded.cut) else decoded.cut,
        ignored=tuple(_select_ignored(part, index) for part in decoded.ignored),
    )


def _select_ignored(ignored: Ignored, index: npt.NDArray[np.int64]) -> Ignored:
    positions = np.flatnonzero(np.isin(ignored.index, index))
    if len(positions) == len(ignored.index):
        return ignored
    return Ignored(
        ignored.index[positions], lambda position: ignored.fields(int(positions[position]))
    )


def matching_items(lists: pa.ListArray, others: pa.ListArray) -> pa.Array:
    """Returns the items of `others` that are at the same places as the items of `lists`.

    An item is null where the other list is null or empty. Any other pair of lists must have
    the same length.
    """
    parents = pc.list_parent_indices(lists).to_numpy()
    lengths = np.where(others.is_valid(), pc.fill_null(pc.list_value_length(others), 0), 0)
    begins = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    index_in_list = np.arange(len(parents)) - np.repeat(
        np.concatenate([[0], np.cumsum(counts)])[:-1], counts
    )
    present = lengths[parents] > 0
    return others.flatten().take(
        pa.array(np.where(present, begins[parents] + index_in_list, 0), mask=~present)
    )
