"""What other readers of Delta see of a table: findings about them that README and
DESIGN tell, and that a new version may change.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from tests.fixtures.stores.make import unpack

WIDER = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("day", pa.timestamp("us", "UTC")),
        pa.field("w", pa.string()),
    ]
)


def test_polars_sees_the_windows_by_way_of_pyarrow_only(tmp_path: Path) -> None:
    """By itself polars takes a partition column's values from folders' names, so each
    window is null; with use_pyarrow they are there.
    """
    unpack("delta", tmp_path)
    table = str(tmp_path / "orders")
    assert pl.read_delta(table)["_window"].null_count() == 36
    assert pl.read_delta(table, use_pyarrow=True)["_window"].n_unique() == 2


def narrow(folder: Path) -> tuple[DeltaTable, AddAction]:
    """A table, and a file with narrower columns that isn't in it yet."""
    table = DeltaTable.create(str(folder), Schema.from_arrow(WIDER), partition_by=["w"])
    file = folder / "narrow.parquet"
    pq.write_table(
        pa.table({"n": pa.array([1, -2], pa.int32()), "day": pa.array([0, 1], pa.date32())}), file
    )
    return table, AddAction(
        file.name,
        file.stat().st_size,
        {"w": "a"},
        0,
        data_change=True,
        stats=json.dumps({"numRecords": 2}),
    )


def test_narrow_files_are_read_by_kindness(tmp_path: Path) -> None:
    """Without Delta's typeWidening no reader has to read a file that is narrower than
    its table; two do, but not for dates.
    """
    table, file = narrow(tmp_path)
    table.create_write_transaction([file], "append", table.schema(), ["w"])
    assert DeltaTable(str(tmp_path)).to_pyarrow_table()["n"].to_pylist() == [1, -2]
    assert pl.read_delta(str(tmp_path), columns=["n"])["n"].to_list() == [1, -2]
    with pytest.raises(pl.exceptions.SchemaError, match="Date"):
        pl.read_delta(str(tmp_path))


def test_which_write_of_deltalake_takes_a_schema(tmp_path: Path) -> None:
    """Columns are dropped by "append" without a word, and taken by "overwrite" of no
    partition, which removes no file; no feature is.
    """
    _, file = narrow(tmp_path)
    more = Schema.from_arrow(WIDER.append(pa.field("more", pa.string())))
    for mode, columns in (("append", 3), ("overwrite", 4)):
        nothing = None if mode == "append" else [("w", "in", list[str]())]
        DeltaTable(str(tmp_path)).create_write_transaction(
            [file], mode, more, ["w"], partition_filters=nothing
        )  # type: ignore[arg-type]
        assert len(DeltaTable(str(tmp_path)).schema().fields) == columns
        assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 2
    local = Schema.from_arrow(WIDER.append(pa.field("at", pa.timestamp("us"))))
    with pytest.raises(DeltaError, match="timestampNtz"):
        DeltaTable(str(tmp_path)).create_write_transaction(
            [file], "overwrite", local, ["w"], partition_filters=[("w", "in", [])]
        )
