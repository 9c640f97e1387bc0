"""The shape of what is staged for a table with a primary key: rows, and between them what takes a row out, in the order of the log."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

DELETED = "_deleted"
"""The last column of a change: whether it takes the row of its key out. Then it has the columns of the primary key, and nulls."""


def change_schema(rows: pa.Schema, primary_key: Collection[str]) -> pa.Schema:
    """The columns of changes of such rows."""
    return pa.schema(
        [*(f if f.name in primary_key else f.with_nullable(True) for f in rows), pa.field(DELETED, pa.bool_(), nullable=False)]
    )


def changes(
    rows: pa.RecordBatch, row_index: pa.Int64Array, keys: pa.RecordBatch, key_index: pa.Int64Array
) -> tuple[pa.RecordBatch, pa.Int64Array]:  # fmt: skip
    """Rows, and the keys of those to be taken out, as changes in the order of their messages; and the message of each.

    In one message what takes out comes first.
    """
    index = pa.concat_arrays([key_index, row_index])
    order = pa.array(np.argsort(index.to_numpy(), kind="stable"))
    known = dict(zip(keys.schema.names, keys.columns, strict=True))
    columns = [
        pa.concat_arrays([known.get(name, pa.nulls(len(key_index), column.type)), column]).take(order)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    deleted = pa.concat_arrays([pa.repeat(True, len(key_index)), pa.repeat(False, rows.num_rows)]).take(order)
    return pa.RecordBatch.from_arrays([*columns, deleted], [*rows.schema.names, DELETED]), index.take(order)


def only_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same of messages that take nothing out."""
    return pa.RecordBatch.from_arrays([*rows.columns, pa.repeat(False, rows.num_rows)], [*rows.schema.names, DELETED])
