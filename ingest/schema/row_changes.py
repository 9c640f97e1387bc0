"""Schema of the changes that are staged for a table with a primary key.

Changes are rows and deletes, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

DELETED = "_deleted"
"""Column of a change that is true if the change deletes the row of its key.

Then all columns except the primary key are null.
"""

UNAVAILABLE = pa.field("_unavailable", pa.list_(pa.string()))
"""Last column of a change, for tables that keep values which a change left unchanged.

It names the columns that are null because the message doesn't have their unchanged values. It
is null or empty if there are no such columns. The table doesn't have this column.
"""


def change_schema(rows: pa.Schema, primary_key: Collection[str]) -> pa.Schema:
    """Returns the schema of changes: the rows' columns and the mark.

    All of the rows' columns are nullable, except the columns of the primary key.
    """
    return pa.schema(
        [
            *(f if f.name in primary_key else f.with_nullable(True) for f in rows),
            pa.field(DELETED, pa.bool_(), nullable=False),
        ]
    )


def changes(
    rows: pa.RecordBatch,
    row_index: pa.Int64Array,
    keys: pa.RecordBatch,
    key_index: pa.Int64Array,
    unavailable: pa.ListArray | None = None,
) -> tuple[pa.RecordBatch, pa.Int64Array]:
    """Returns the changes in the order of their messages, and the message of each change.

    Deletes come before the rows of the same message.

    Args:
        rows: the rows.
        row_index: the message of each row.
        keys: the keys of the rows to delete.
        key_index: the message of each key.
        unavailable: the values of `UNAVAILABLE` for each row; None if the changes don't
            have this column.
    """
    index = pa.concat_arrays([key_index, row_index])
    order = pa.array(np.argsort(index.to_numpy(), kind="stable"))
    key_columns = dict(zip(keys.schema.names, keys.columns, strict=True))
    columns = [
        pa.concat_arrays(
            [key_columns.get(name, pa.nulls(len(key_index), column.type)), column]
        ).take(order)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    deleted = pa.concat_arrays(
        [pa.repeat(True, len(key_index)), pa.repeat(False, rows.num_rows)]
    ).take(order)
    if unavailable is not None:
        unavailable = pa.concat_arrays(
            [pa.nulls(len(key_index), UNAVAILABLE.type), unavailable]
        ).take(order)
    return _change_batch(rows.schema.names, columns, deleted, unavailable), index.take(order)


def only_rows(rows: pa.RecordBatch, unavailable: pa.ListArray | None = None) -> pa.RecordBatch:
    """Returns rows as changes, for messages without deletes."""
    return _change_batch(
        rows.schema.names, rows.columns, pa.repeat(False, rows.num_rows), unavailable
    )


def _change_batch(
    names: Sequence[str],
    columns: Sequence[pa.Array],
    deleted: pa.Array,
    unavailable: pa.ListArray | None,
) -> pa.RecordBatch:
    more = [] if unavailable is None else [unavailable]
    return pa.RecordBatch.from_arrays(
        [*columns, deleted, *more], [*names, DELETED, *([UNAVAILABLE.name] * len(more))]
    )
