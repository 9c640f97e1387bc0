"""Reads of tables by other Delta readers.

README and DESIGN describe these facts; a new version may change them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt, window

WIDER = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("day", pa.timestamp("us", "UTC")),
        pa.field("w", pa.string()),
    ]
)


@pytest.mark.parametrize("key", [None, PrimaryKey(("id",), buckets=3)])
def test_polars_and_duckdb_see_the_windows(tmp_path: Path, key: PrimaryKey | None) -> None:
    """Polars and DuckDB find the rows of a window by a filter, before and after its replacement
    and with other columns.

    They take a partition's value from the folder's name.
    """
    sink: Any = DeltaBoth(str(tmp_path / "orders"), ROWS, evolve="widen")
    if key is not None:
        sink = DeltaKeyedBoth(str(tmp_path / "orders"), ROWS, key)
    sink.prepare()
    for number, generation in ((0, 0), (1, 0), (1, 1)):
        receipt, staged = staged_receipt(sink, number, generation, f"a{number}{generation}")
        sink.commit_dead(receipt.plan, receipt.attempt, staged)
        assert isinstance(sink.commit(receipt, staged), Done)
    for table, rows in ((sink.uri, 18), (f"{sink.uri}_dead", 2)):
        of_window = pl.scan_delta(table).filter(pl.col("_window") == window(0).key).collect()
        assert (of_window.height, of_window["_window"].null_count()) == (rows, 0)
    paths = DeltaTable(sink.uri).file_uris()
    query = "SELECT count(*) FROM read_parquet($paths) WHERE _window = $window"
    counts = duckdb.sql(query, params={"paths": paths, "window": window(1).key}).fetchall()
    assert counts == [(18,)]


def make_narrow(folder: Path) -> tuple[DeltaTable, AddAction]:
    """Returns a table, and a file with narrower columns that isn't in the table yet."""
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
    """deltalake and Polars read integer columns of a file that is narrower than its table;
    Polars refuses dates.

    Without Delta's feature typeWidening no reader has to read such files.
    """
    table, file = make_narrow(tmp_path)
    table.create_write_transaction([file], "append", table.schema(), ["w"])
    assert DeltaTable(str(tmp_path)).to_pyarrow_table()["n"].to_pylist() == [1, -2]
    assert pl.read_delta(str(tmp_path), columns=["n"])["n"].to_list() == [1, -2]
    with pytest.raises(pl.exceptions.SchemaError, match="Date"):
        pl.read_delta(str(tmp_path))


def test_which_write_of_deltalake_takes_a_schema(tmp_path: Path) -> None:
    """deltalake ignores new columns with mode "append", and takes them with "overwrite" of no
    partition, which removes no file.

    Neither mode adds a protocol feature.
    """
    _, file = make_narrow(tmp_path)
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
