"""The shape of what is staged for a table with a primary key: rows, and between them what takes a row out, in the order of the log."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from ingest.ports.decoder import Deletes

DELETED = "_deleted"
"""The last column of a change: whether it takes the row of its key out. Then it has the columns of the primary key, and nulls."""


def change_schema(rows: pa.Schema, primary_key: Collection[str]) -> pa.Schema:
    """The columns of changes of such rows."""
    return pa.schema(
        [*(f if f.name in primary_key else f.with_nullable(True) for f in rows), pa.field(DELETED, pa.bool_(), nullable=False)]
    )


def changes(rows: pa.RecordBatch, row_index: pa.Int64Array, deletes: Deletes | None) -> tuple[pa.RecordBatch, pa.Int64Array]:
    """Rows and deletes as changes in the order of their messages, and the message of each. In one message deletes come first."""
    names = [*rows.schema.names, DELETED]
    if deletes is None or not len(deletes.index):
        return pa.RecordBatch.from_arrays([*rows.columns, pa.repeat(False, rows.num_rows)], names), row_index
    count = len(deletes.index)
    index = pa.concat_arrays([deletes.index, row_index])
    order = pa.array(np.argsort(index.to_numpy(), kind="stable"))
    keys = dict(zip(deletes.keys.schema.names, deletes.keys.columns, strict=True))
    columns = [
        pa.concat_arrays([keys.get(name, pa.nulls(count, column.type)), column]).take(order)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    deleted = pa.concat_arrays([pa.repeat(True, count), pa.repeat(False, rows.num_rows)]).take(order)
    return pa.RecordBatch.from_arrays([*columns, deleted], names), index.take(order)
