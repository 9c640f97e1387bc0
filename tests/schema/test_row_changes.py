"""Rows and deletes as one batch, in the order of the log."""

from __future__ import annotations

import pyarrow as pa

from windrow.ingest.schema.row_changes import change_schema, changes, only_rows

ROWS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)]
)


def test_deletes_stand_before_the_rows_of_their_message() -> None:
    """The deletes of a message come before its rows, as for an update that changes the key.

    A delete has its key and nulls in the other columns.
    """
    rows = pa.record_batch(
        [pa.array([1, 2, 3], pa.int64()), pa.array(["a", "b", "c"])], schema=ROWS
    )
    keys = pa.record_batch([pa.array([7, 8, 9], pa.int64())], ["id"])
    changed_rows, index = changes(
        rows, pa.array([0, 1, 2], pa.int64()), keys, pa.array([1, 1, 4], pa.int64())
    )
    assert index.to_pylist() == [0, 1, 1, 1, 2, 4]
    assert [tuple(row.values()) for row in changed_rows.to_pylist()] == [
        (1, "a", False),
        (7, None, True),
        (8, None, True),
        (2, "b", False),
        (3, "c", False),
        (9, None, True),
    ]
    assert changed_rows.schema.names == change_schema(ROWS, ["id"]).names
    assert [f.nullable for f in change_schema(ROWS, ["id"])] == [False, True, False]


def test_without_deletes_rows_stay_as_they_are() -> None:
    """Rows without deletes only get the column `_deleted`."""
    rows = pa.record_batch([pa.array([1], pa.int64()), pa.array(["a"])], schema=ROWS)
    changed_rows = only_rows(rows)
    assert changed_rows.to_pylist() == [{"id": 1, "name": "a", "_deleted": False}]
    assert changed_rows.schema.names == change_schema(ROWS, ["id"]).names
