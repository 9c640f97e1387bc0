"""Functions on columns that are fields of objects, at any depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.ports.decoder import Refusal
from windrow.ingest.schema.columns import Column, Columns, epoch_of, field_of, zone_of
from windrow.ingest.schema.message_fields import FieldPath

Leaf = tuple[FieldPath, Column]
"""Column, and its path in a message."""


def nest_columns(leaves: Sequence[Leaf]) -> Columns:
    """Returns the columns of a message that has each leaf at its path.

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
    """Returns the column at a path; null where a struct on the path is null.

    The empty path has all columns, as a struct.
    """
    if not path:
        return rows.to_struct_array()
    name, *rest = path
    column = rows.column(name)
    return pc.struct_field(column, rest) if rest else column


def path_text(path: FieldPath) -> str:
    """Returns a path in the form of error messages: `$.source.ts_ms`."""
    return ".".join(("$", *path))


def refuse_nulls(values: pa.Array, path: str) -> Refusal:
    """Refuses rows that are null in a column that isn't nullable."""
    is_null = values.is_null() if values.null_count else pa.nulls(0, pa.bool_())
    return Refusal(
        np.flatnonzero(is_null.to_numpy(zero_copy_only=False)),
        "missing",
        f"Expected a value, got none - at {path}",
    )
