"""The shape of what is staged for a table with a primary key: rows, and between them
what takes a row out, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

DELETED = "_deleted"
"""A column of each change: whether it takes the row of its key out.

Then it has the columns of the primary key, and nulls.
"""

UNAVAILABLE = pa.field("_unavailable", pa.list_(pa.string()))
"""The last column of a change, where a table keeps what changes leave alone, in no row
of it: which columns are null because the change left them alone.

Null or empty: none.
"""


def change_schema(rows: pa.Schema, primary_key: Collection[str]) -> pa.Schema:
    """The columns of changes of such rows."""
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
    """Rows, and the keys of those to be taken out, as changes in the order of their
    messages; and the message of each.

    `unavailable`: of each row; None where none leaves a column alone, and the changes
    have no column for it.

    In one message what takes out comes first.
    """
    index = pa.concat_arrays([key_index, row_index])
    order = pa.array(np.argsort(index.to_numpy(), kind="stable"))
    known = dict(zip(keys.schema.names, keys.columns, strict=True))
    columns = [
        pa.concat_arrays([known.get(name, pa.nulls(len(key_index), column.type)), column]).take(
            order
        )
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    deleted = pa.concat_arrays(
        [pa.repeat(True, len(key_index)), pa.repeat(False, rows.num_rows)]
    ).take(order)
    if unavailable is not None:
        unavailable = pa.concat_arrays(
            [pa.nulls(len(key_index), UNAVAILABLE.type), unavailable]
        ).take(order)
    return _with(rows.schema.names, columns, deleted, unavailable), index.take(order)


def only_rows(rows: pa.RecordBatch, unavailable: pa.ListArray | None = None) -> pa.RecordBatch:
    """The same of messages that take nothing out."""
    return _with(rows.schema.names, rows.columns, pa.repeat(False, rows.num_rows), unavailable)


def _with(
    names: Sequence[str],
    columns: Sequence[pa.Array],
    deleted: pa.Array,
    unavailable: pa.ListArray | None,
) -> pa.RecordBatch:
    more = [] if unavailable is None else [unavailable]
    return pa.RecordBatch.from_arrays(
        [*columns, deleted, *more], [*names, DELETED, *([UNAVAILABLE.name] * len(more))]
    )
